//! Numbers and texts as bytes: little numbers take few.

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not what was written")]
pub(crate) struct Damaged;

/// Writes at the end of a buffer.
pub(crate) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u64(&mut self, value: u64);
    fn put_u128(&mut self, value: u128);
    fn put_text(&mut self, text: &str);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    /// Seven bits a byte, lowest first.
    fn put_u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        self.put_u64(text.len() as u64);
        self.extend_from_slice(text.as_bytes());
    }
}

/// Reads from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Get<'a>(pub(crate) &'a [u8]);

impl<'a> Get<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damaged> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damaged> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damaged)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damaged> {
        self.u64()?.try_into().map_err(|_| Damaged)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Damaged> {
        let bytes = self.take(16)?.try_into().map_err(|_| Damaged)?;
        Ok(u128::from_le_bytes(bytes))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Damaged> {
        let length = self.u64()?.try_into().map_err(|_| Damaged)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        for value in [0, 1, 127, 128, 300, u64::MAX] {
            bytes.put_u64(value);
        }
        bytes.put_text("Gäste");
        bytes.put_u128(u128::MAX);
        let mut get = Get(&bytes);
        for value in [0, 1, 127, 128, 300, u64::MAX] {
            assert_eq!(get.u64(), Ok(value));
        }
        assert_eq!(get.text(), Ok("Gäste"));
        assert_eq!(get.u128(), Ok(u128::MAX));
        assert!(get.is_empty());
        assert_eq!(get.u8(), Err(Damaged));
    }
}
