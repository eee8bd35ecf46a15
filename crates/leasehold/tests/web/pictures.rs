//! The pictures in the README, taken from the pages and the rush's report as they are.
//!
//! They are taken with every run. Where they are kept is said by `LEASEHOLD_PICTURES`, which `cargo xtask pictures` sets;
//! beside them is a line for each, with a fingerprint of the picture and one of what it shows, written when it is taken. A
//! run that finds another picture, or other pages, fails: the pictures cannot go stale.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_api::{HoldView, ItemSpec};
use leasehold_client::Request;
use leasehold_testkit::Screen;
use serde_json::json;

use crate::console::choose;
use crate::house::{House, Person, rules};

/// How many simulated buyers are in the pictures.
const CROWD: u32 = 40;
const FINGERPRINTS: &str = "pages.fingerprint";
/// What is drawn in them: files, and folders of files.
const DRAWN_BY: [&str; 4] = [
    "crates/leasehold-server/web",
    "crates/leasehold/src/crowd.rs",
    "crates/leasehold/src/demo.rs",
    "crates/leasehold/src/rush/report",
];
const TAKEN: [&str; 9] = [
    "buyer.png",
    "buyer-dark.png",
    "phone-choose.png",
    "phone-held.png",
    "phone-ticket.png",
    "console-sales.png",
    "console-seats.png",
    "console-rush.png",
    "rush.svg",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where pictures are kept, if they are.
fn kept_in() -> Option<PathBuf> {
    std::env::var_os("LEASEHOLD_PICTURES").map(PathBuf::from)
}

/// Bytes folded into a number. FNV-1a: it guards against forgetting, not against malice.
fn folded<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// What is drawn: any change of a file gives another number.
fn drawn() -> u64 {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for path in DRAWN_BY.map(|path| repository().join(path)) {
        let folder = std::fs::read_dir(&path).ok();
        let inside = folder.map(|entries| entries.map(|entry| entry.unwrap().path()).collect());
        for file in inside.unwrap_or_else(|| vec![path]) {
            files.insert(file.clone(), std::fs::read(file).unwrap());
        }
    }
    let all = files
        .iter()
        .flat_map(|(path, bytes)| path.file_name().unwrap().as_encoded_bytes().iter().chain(bytes));
    folded(all)
}

/// The line that belongs to a picture.
fn fingerprint(name: &str, picture: &[u8]) -> String {
    format!("{name} {:016x} {:016x}\n", folded(picture), drawn())
}

fn keep(name: &str, picture: &[u8]) {
    /// Pictures are taken at the same time, and their lines are in one file.
    static WRITING: Mutex<()> = Mutex::new(());
    assert!(TAKEN.contains(&name), "{name} is not in the list");
    assert_is_picture(name, picture);
    if let Some(folder) = kept_in() {
        let _alone = WRITING.lock().unwrap();
        std::fs::write(folder.join(name), picture).unwrap();
        let before = std::fs::read_to_string(folder.join(FINGERPRINTS)).unwrap_or_default();
        let is_other =
            |line: &&str| TAKEN.iter().any(|one| *one != name && line.split(' ').next() == Some(*one));
        let others = before.lines().filter(is_other);
        let mut lines: Vec<String> = others.map(|line| format!("{line}\n")).collect();
        lines.push(fingerprint(name, picture));
        lines.sort();
        std::fs::write(folder.join(FINGERPRINTS), lines.concat()).unwrap();
    }
}

fn assert_is_picture(name: &str, picture: &[u8]) {
    let begins: &[u8] = if name.ends_with(".png") { b"\x89PNG" } else { b"<svg" };
    assert!(picture.starts_with(begins), "{name} is no picture");
    assert!(picture.len() > 10_000, "{name} has {} bytes: an empty page?", picture.len());
}

#[test]
fn the_pictures_that_are_kept_show_the_pages_as_they_are() {
    let folder = repository().join("docs/pictures");
    let kept = std::fs::read_to_string(folder.join(FINGERPRINTS)).unwrap_or_default();
    let mut lines =
        TAKEN.map(|name| fingerprint(name, &std::fs::read(folder.join(name)).unwrap_or_default()));
    lines.sort();
    assert_eq!(
        kept,
        lines.concat(),
        "the pages, or a picture, have changed since it was taken: cargo xtask pictures"
    );
}

#[test]
fn every_picture_in_the_documents_is_one_that_is_taken_and_none_is_taken_for_nothing() {
    let documents = std::fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = BTreeSet::new();
    for document in documents.chain([repository().join("README.md")]).filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&document).unwrap();
        for (at, start) in text.match_indices("pictures/") {
            let name = text[at + start.len()..].split(['"', ')']).next().unwrap();
            assert!(TAKEN.contains(&name), "{name} in {}", document.display());
            seen.insert(name.to_owned());
        }
    }
    assert_eq!(seen, TAKEN.map(str::to_owned).into());
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
    buyer.run("await new Promise((next) => setTimeout(next, 1_000)); window.scrollTo(0, 0);").await;
    let shown = "return document.getElementById('pay').getBoundingClientRect().bottom <= window.innerHeight;";
    assert_eq!(buyer.run(shown).await, true, "what is to be pressed next is seen without scrolling");
    keep("phone-held.png", &buyer.picture().await);
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    let ready =
        "await Promise.all(document.getAnimations().filter((one) => one.effect.getTiming().iterations === 1)
            .map((one) => one.finished));
        document.getElementById('view').scrollIntoView();
        await new Promise((next) => setTimeout(next, 1_000));";
    buyer.run(ready).await;
    keep("phone-ticket.png", &buyer.picture().await);
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn the_console_has_its_picture_taken() {
    let house = House::with_crowd(CROWD);
    // High enough for a seat's whole story.
    let mut operator = Person::sit_down(Screen { height: 1000, ..Screen::DESKTOP }).await;
    operator.open(&house.url("/console#seats")).await;
    operator.until("document.getElementById('map')?.connection === 'live'").await;
    full_house(&mut operator).await;
    // A seat with a story: given back, taken away with a reason, paid for too late, and held now.
    // The crowd comes to the back rows late, and somebody may be there all the same.
    let (mut seat, mut first) = (String::new(), None);
    for place in 3..12 {
        seat = format!("106-10-{place}");
        let answer = house.try_hold("arena", ItemSpec::seat(&seat), "ada").await;
        if answer.status == 201 {
            first = Some(answer.json::<HoldView>().unwrap());
            break;
        }
    }
    let given_back = first.expect("a seat in the last row is free");
    let seat = seat.as_str();
    let some_time = Duration::from_millis(if kept_in().is_some() { 1_700 } else { 0 });
    tokio::time::sleep(some_time).await;
    let release =
        Request::delete(format!("/v1/holds/{}", given_back.hold_id)).secret(given_back.secret.unwrap());
    assert_eq!(house.client().send(release).await.unwrap().status, 200);
    tokio::time::sleep(some_time).await;
    let late = house.hold("arena", ItemSpec::seat(seat), "alan").await;
    let paid = json!({"payment_ref": "pay-4711"});
    let begin = Request::post(format!("/v1/holds/{}/payment", late.hold_id), &paid);
    let secret = late.secret.unwrap();
    assert_eq!(house.client().send(begin.secret(secret.clone())).await.unwrap().status, 200);
    tokio::time::sleep(some_time).await;
    let revoke =
        Request::post(format!("/v1/holds/{}/revoke", late.hold_id), &json!({"reason": "camera position"}));
    assert_eq!(house.client().send(revoke).await.unwrap().status, 200);
    tokio::time::sleep(some_time).await;
    house.hold("arena", ItemSpec::seat(seat), "grace").await;
    tokio::time::sleep(some_time).await;
    let confirm = Request::post(format!("/v1/holds/{}/confirm", late.hold_id), &paid);
    assert_eq!(house.client().send(confirm.secret(secret)).await.unwrap().status, 409);
    operator.until_sees(seat, "held").await;
    operator.fill("#find-text", seat).await;
    operator.click("#find").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Held'").await;
    operator.run("await new Promise((next) => setTimeout(next, 1_000));").await;
    assert_eq!(operator.sees(seat).await, "held", "the map and the panel say the same");
    keep("console-seats.png", &operator.picture().await);

    operator.show_on(Screen::DESKTOP).await;
    operator.open(&house.url("/console#rush")).await;
    operator.click("#start-rush").await;
    operator.until_there("#verdict").await;
    operator.run("await new Promise((next) => setTimeout(next, 600));").await;
    keep("console-rush.png", &operator.picture().await);
    operator.click(".tabs a[href='#sales']").await;
    // Whoever looks at lines wants to see some of them; a test by itself need not wait for that.
    let points = if kept_in().is_some() { 45 } else { 5 };
    let line = "document.querySelector('#event-sales .chart path.line').getAttribute('d')";
    operator.until(&format!("{line}.split('L').length > {points}")).await;
    keep("console-sales.png", &operator.picture().await);
    operator.assert_no_complaints().await;
}

#[test]
fn the_report_of_a_rush_has_its_picture_taken() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("rush.svg");
    // The README tells of ten seconds.
    let duration = if kept_in().is_some() { "10s" } else { "1s" };
    let mut rush = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let ended = rush.args(["rush", "--duration", duration, "--report"]).arg(&report).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let picture = std::fs::read(&report).unwrap();
    assert!(String::from_utf8_lossy(&picture).contains("PASSED: exactly 3 of 3 seats sold"));
    keep("rush.svg", &picture);
}

/// A picture that no document shows, for whoever changes a page and wants to look.
async fn look(person: &mut Person, name: &str) {
    // What fades in has done so, and the camera rests.
    person.run("await new Promise((next) => setTimeout(next, 800));").await;
    let picture = person.picture().await;
    assert_is_picture(name, &picture);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), picture).unwrap();
}

#[tokio::test]
async fn views_that_no_document_shows_can_be_looked_at_too() {
    let house = House::open();
    house.sell("gala", 20, rules(300)).await;
    house.hold("gala", ItemSpec::pool("floor", 3), "grace").await;
    for lock in ["report:nightly", "import:orders"] {
        let body = json!({"ttl_ms": 60_000, "label": "host-7/cron"});
        let taken = house.client().send(Request::post(format!("/v1/locks/{lock}"), &body)).await.unwrap();
        assert_eq!(taken.status, 201);
    }
    let blocks = json!({"seats": ["B-4-9", "B-4-10"], "pools": [{"id": "floor", "quantity": 5}], "reason": "for the band"});
    let blocked = house.client().send(Request::post("/v1/events/gala/blocks", &blocks)).await.unwrap();
    assert_eq!(blocked.status, 201);
    let mut buyer = house.visitor("gala", Screen::PHONE).await;
    buyer.click_seat("A-3-5").await;
    house.hold("gala", ItemSpec::seat("A-3-5"), "ada").await;
    buyer.until_there(".offers button").await;
    look(&mut buyer, "phone-refused.png").await;
    buyer.click(".offers button").await;
    buyer.click("#pay").await;
    look(&mut buyer, "phone-till.png").await;
    buyer.click("input[name=bank][value=slow]").await;
    buyer.click("#pay-now").await;
    buyer.until_there("#waiting").await;
    look(&mut buyer, "phone-paying.png").await;
    buyer.open(&house.url("/")).await;
    buyer.until_says("The gala evening").await;
    look(&mut buyer, "phone-lobby.png").await;
    for screen in [Screen::DESKTOP, Screen::PHONE] {
        buyer.show_on(screen).await;
        for view in ["sales", "seats", "locks", "health"] {
            buyer.open(&house.url(&format!("/console#{view}"))).await;
            buyer.reload().await;
            buyer.until_there(&format!("#view[data-showing={view}]")).await;
            choose(&mut buyer, "gala").await;
            look(&mut buyer, &format!("console-{view}-{}.png", screen.width)).await;
        }
        buyer.click(".tabs a[href='#seats']").await;
        buyer.until_says("for the band").await;
        buyer.run("document.getElementById('blocks').scrollIntoView();").await;
        look(&mut buyer, &format!("console-blocks-{}.png", screen.width)).await;
    }
    buyer.assert_no_complaints().await;
}
