//! Escapes in paths and queries: `%` and two hexadecimal digits for a byte of UTF-8.

/// The text with its escapes replaced; none when one is incomplete or the bytes are not UTF-8. A `+` is a `+`.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_strictly() {
        assert_eq!(decode("order:7").as_deref(), Some("order:7"));
        assert_eq!(decode("a%2Fb%2fc%20%C3%A9+").as_deref(), Some("a/b/c \u{e9}+"));
        for bad in ["%", "a%2", "%zz", "%+1", "%ff", "%C3", "%%20"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
