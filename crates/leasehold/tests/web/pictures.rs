//! The pictures in the README, taken from the pages as they are.
//!
//! They are taken with every run. Where they are kept is said by `LEASEHOLD_PICTURES`, which `cargo xtask pictures` sets;
//! beside them is a fingerprint of the pages, and a run with other pages fails: the pictures cannot go stale.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use leasehold_testkit::Screen;

use crate::house::{House, Person};

/// How many simulated buyers are in the pictures.
const CROWD: u32 = 40;
const FINGERPRINT: &str = "pages.fingerprint";
const TAKEN: [&str; 8] = [
    "buyer.png",
    "buyer-dark.png",
    "phone-choose.png",
    "phone-held.png",
    "phone-ticket.png",
    "console-sales.png",
    "console-seats.png",
    "console-rush.png",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages, folded into a number: any change of a file gives another one.
fn fingerprint() -> String {
    let folder = repository().join("crates/leasehold-server/web");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeMap<PathBuf, Vec<u8>> =
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    // FNV-1a: it guards against forgetting, not against malice.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (path, bytes) in &files {
        let name = path.file_name().unwrap().as_encoded_bytes();
        for byte in name.iter().chain(bytes) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}\n")
}

fn keep(name: &str, picture: &[u8]) {
    assert!(TAKEN.contains(&name), "{name} is not in the list");
    assert!(picture.starts_with(b"\x89PNG"), "{name} is no picture");
    assert!(picture.len() > 20_000, "{name} has {} bytes: an empty page?", picture.len());
    if let Some(folder) = std::env::var_os("LEASEHOLD_PICTURES") {
        std::fs::write(Path::new(&folder).join(name), picture).unwrap();
    }
}

#[test]
fn the_pictures_that_are_kept_show_the_pages_as_they_are() {
    if let Some(folder) = std::env::var_os("LEASEHOLD_PICTURES") {
        std::fs::write(Path::new(&folder).join(FINGERPRINT), fingerprint()).unwrap();
    }
    let kept =
        std::fs::read_to_string(repository().join("docs/pictures").join(FINGERPRINT)).unwrap_or_default();
    assert_eq!(
        kept,
        fingerprint(),
        "the pages have changed since their pictures were taken: cargo xtask pictures"
    );
}

#[test]
fn every_picture_in_the_documents_is_one_that_is_taken() {
    let documents = std::fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for document in documents.chain([repository().join("README.md")]).filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&document).unwrap();
        for (at, _) in text.match_indices(".png") {
            let name = text[..at].rsplit(['/', '"', '(']).next().unwrap();
            assert!(TAKEN.contains(&format!("{name}.png").as_str()), "{name}.png in {}", document.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "the README has pictures");
}

/// Waits until the crowd has come and seats change before one's eyes.
async fn full_house(person: &mut Person) {
    person.until("document.getElementById('map').counts?.sold > 1000").await;
    person.until("document.getElementById('map').counts.held > 20").await;
}

#[tokio::test]
async fn the_buyers_page_has_its_picture_taken() {
    let house = House::with_crowd(CROWD);
    for (name, screen) in [("buyer.png", Screen::DESKTOP), ("buyer-dark.png", Screen::DESKTOP.dark())] {
        let mut buyer = house.visitor("arena", screen).await;
        full_house(&mut buyer).await;
        keep(name, &buyer.picture().await);
        buyer.assert_no_complaints().await;
    }
    let mut buyer = house.visitor("arena", Screen::PHONE).await;
    full_house(&mut buyer).await;
    keep("phone-choose.png", &buyer.picture().await);
    buyer.click("input[name=way][value=best]").await;
    buyer.click("#hold-best").await;
    buyer.until_there("#countdown").await;
    buyer.run("await new Promise((next) => setTimeout(next, 600)); window.scrollTo(0, 0);").await;
    keep("phone-held.png", &buyer.picture().await);
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    let ready =
        "await Promise.all(document.getAnimations().filter((one) => one.effect.getTiming().iterations === 1)
            .map((one) => one.finished));
        document.querySelector('.ticket').scrollIntoView({ block: 'end' });";
    buyer.run(ready).await;
    keep("phone-ticket.png", &buyer.picture().await);
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn the_console_has_its_picture_taken() {
    let house = House::with_crowd(CROWD);
    let mut operator = Person::sit_down(Screen::DESKTOP).await;
    operator.open(&house.url("/console#seats")).await;
    operator.until("document.getElementById('map')?.connection === 'live'").await;
    full_house(&mut operator).await;
    // A seat that somebody gave back and somebody else has now makes the best story; any that is held will do.
    let seat = "const map = document.getElementById('map');
        for (let row = 1; row <= 10; row += 1) for (let section = 101; section <= 112; section += 1) for (let seat = 1; seat <= 14; seat += 1) {
          const id = `${section}-${row}-${seat}`;
          if (map.statusOf(id) === 'held') return id;
        }";
    let mut found = operator.run(seat).await;
    while !found.is_string() {
        found = operator.run(seat).await;
    }
    operator.fill("#find-text", found.as_str().unwrap()).await;
    operator.click("#find").await;
    operator.until_there("#timeline").await;
    operator.run("await new Promise((next) => setTimeout(next, 600));").await;
    keep("console-seats.png", &operator.picture().await);

    operator.open(&house.url("/console#rush")).await;
    operator.click("#start-rush").await;
    operator.until_there("#verdict").await;
    operator.run("await new Promise((next) => setTimeout(next, 600));").await;
    keep("console-rush.png", &operator.picture().await);
    operator.click(".tabs a[href='#sales']").await;
    operator
        .until("document.querySelectorAll('.chart path.line')[0].getAttribute('d').split('L').length > 15")
        .await;
    keep("console-sales.png", &operator.picture().await);
    operator.assert_no_complaints().await;
}
