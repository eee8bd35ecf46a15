//! The seat map by itself, on a page that is not ours: its contract, as docs/seat-map.md has it, and its camera.

use leasehold_api::ItemSpec;
use leasehold_client::Request;
use leasehold_testkit::Screen;
use serde_json::{Value, json};

use crate::house::{House, Person, rules};

/// A page that the element covers, and that writes down what it tells.
async fn bare(house: &House, screen: Screen, attributes: &str) -> Person {
    let mut person = Person::sit_down(screen).await;
    person.open(&house.url("/")).await;
    let place = format!(
        "await import('/web/seat-map.js');
         window.told = [];
         for (const name of ['ready', 'choose', 'press', 'lost', 'full', 'floor', 'change', 'connection'])
           document.addEventListener('seat-map-' + name, (event) => window.told.push([name, event.detail]));
         window.map = document.createElement('seat-map');
         map.id = 'map';
         map.style.cssText = 'display: block; position: fixed; inset: 0; z-index: 9';
         for (const [name, value] of Object.entries({attributes})) map.setAttribute(name, value);
         document.body.append(map);"
    );
    person.run(&place).await;
    person
}

/// What was told under a name, the last one.
async fn last_told(person: &mut Person, name: &str) -> Value {
    person.run(&format!("return window.told.findLast(([one]) => one === {name:?})?.[1] ?? null;")).await
}

async fn how_often(person: &mut Person, name: &str) -> u64 {
    let count = format!("return window.told.filter(([one]) => one === {name:?}).length;");
    person.run(&count).await.as_u64().unwrap()
}

#[tokio::test]
async fn it_tells_what_it_promises_to_tell() {
    let house = House::open();
    house.sell("gala", 20, rules(300)).await;
    let mut page = bare(&house, Screen::DESKTOP, "{ src: '/v1/events/gala', max: '2' }").await;
    page.until("map.connection === 'live'").await;
    assert_eq!(how_often(&mut page, "ready").await, 1);
    assert_eq!(last_told(&mut page, "connection").await, json!({"state": "live"}));
    let known =
        page.run("return [map.event.name, map.counts.total, map.pools[0].free, map.sections[1]];").await;
    assert_eq!(known, json!(["The gala evening", 80, 20, {"name": "B", "total": 40, "free": 40}]));

    page.click_seat("A-2-3").await;
    page.until("map.chosen.join() === 'A-2-3'").await;
    let pressed = json!({"seat": "A-2-3", "status": "free", "words": "Section A, row 2, seat 3"});
    assert_eq!(last_told(&mut page, "press").await, pressed);
    assert_eq!(last_told(&mut page, "choose").await, json!({"seats": ["A-2-3"]}));
    page.click_seat("A-2-4").await;
    page.until("map.getAttribute('chosen') === 'A-2-3 A-2-4'").await;
    page.click_seat("A-2-5").await;
    page.until("window.told.some(([name]) => name === 'full')").await;
    assert_eq!(last_told(&mut page, "full").await, json!({"max": 2}));

    // What the page writes is taken over without an event, and the next choice empties what was suggested.
    let chosen_before = how_often(&mut page, "choose").await;
    page.run("map.setAttribute('chosen', 'A-2-4'); map.setAttribute('suggested', 'B-1-1');").await;
    assert_eq!(page.run("return map.chosen;").await, json!(["A-2-4"]));
    assert_eq!(how_often(&mut page, "choose").await, chosen_before);
    page.click_seat("A-2-5").await;
    page.until("map.getAttribute('suggested') === ''").await;

    let hold = house.hold("gala", ItemSpec::seat("A-2-4"), "somebody").await;
    page.until("window.told.some(([name]) => name === 'lost')").await;
    assert_eq!(last_told(&mut page, "lost").await, json!({"seats": ["A-2-4"]}));
    assert_eq!(
        page.run("return [map.chosen, map.statusOf('A-2-4'), map.statusOf('Z')];").await,
        json!([["A-2-5"], "held", null])
    );
    let change = last_told(&mut page, "change").await;
    assert_eq!((&change["kind"], &change["seats"]), (&json!("hold.created"), &json!(["A-2-4"])));
    assert_eq!(change["at"], json!(hold.created_at));
    let near = page.run("return map.nearby(['A-2-4'], 2);").await;
    assert!(
        near.as_array().is_some_and(|groups| !groups.is_empty() && groups[0].as_array().unwrap().len() == 2),
        "{near}"
    );
    page.run("map.clear();").await;
    assert_eq!(last_told(&mut page, "choose").await, json!({"seats": []}));

    let close = Request::patch("/v1/events/gala", &json!({"state": "closed"}));
    assert_eq!(house.client().send(close).await.unwrap().status, 200);
    page.until("map.event.state === 'closed'").await;
    page.until("window.told.some(([name, detail]) => name === 'change' && detail.kind === 'loaded' && detail.seats === null)").await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn another_event_a_missing_one_none_and_its_removal_leave_nothing_of_the_one_before() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    house.sell("opera", 0, rules(300)).await;
    house.hold("opera", ItemSpec::seat("A-1-1"), "somebody").await;
    let mut page = bare(&house, Screen::DESKTOP, "{ src: '/v1/events/gala', chosen: 'A-1-1' }").await;
    page.expect_in_log("status of 404");
    page.until("map.connection === 'live' && map.chosen.length === 1").await;
    page.run("map.setAttribute('src', '/v1/events/opera');").await;
    page.until(
        "window.told.some(([name, detail]) => name === 'connection' && detail.state === 'connecting')",
    )
    .await;
    page.until("map.event?.name === 'The opera evening' && map.statusOf('A-1-1') === 'held'").await;
    page.run("map.setAttribute('src', '/v1/events/nothing');").await;
    page.until("map.connection === 'missing'").await;
    assert_eq!(
        page.run("return [map.event, map.chosen, map.sections, map.nearby(['A-1-1'], 1)];").await,
        json!([null, [], [], []])
    );
    page.run("map.removeAttribute('src');").await;
    assert_eq!(page.run("return [map.event, map.connection];").await, json!([null, "connecting"]));
    page.run("map.setAttribute('src', '/v1/events/gala');").await;
    page.until("map.connection === 'live'").await;
    page.run("map.remove();").await;
    let gone =
        "return [map.event, map.chosen, map.sections, map.statusOf('A-1-1') ?? null, map.wordsFor('A-1-1')];";
    assert_eq!(page.run(gone).await, json!([null, [], [], null, "A-1-1"]));
    page.run("document.body.append(map);").await;
    page.until("map.connection === 'live' && map.event.name === 'The gala evening'").await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn for_looking_only_any_seat_can_be_pressed_and_stays_chosen() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut page = bare(&house, Screen::DESKTOP, "{ src: '/v1/events/gala', look: '' }").await;
    page.until("map.connection === 'live'").await;
    page.click_seat("A-1-1").await;
    page.until("map.chosen.join() === 'A-1-1'").await;
    house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    page.until("map.statusOf('A-1-1') === 'held'").await;
    assert_eq!(page.run("return map.chosen;").await, json!(["A-1-1"]));
    page.click_seat("A-1-1").await;
    page.until("window.told.some(([name, detail]) => name === 'press' && detail.status === 'held')").await;
    assert_eq!(how_often(&mut page, "lost").await, 0);
    page.assert_no_complaints().await;
}

/// Pixels from one seat to another.
async fn apart(page: &mut Person, one: &str, other: &str) -> f64 {
    let (one, other) = (page.place_of(one).await, page.place_of(other).await);
    ((other.0 - one.0) as f64).hypot((other.1 - one.1) as f64)
}

#[tokio::test]
async fn mouse_wheel_buttons_and_keys_move_the_camera() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut page = bare(&house, Screen::DESKTOP, "{ src: '/v1/events/gala' }").await;
    page.until("map.connection === 'live'").await;
    let apart = async |page: &mut Person| apart(page, "A-1-1", "A-4-10").await;
    let whole = apart(&mut page).await;
    page.run("map.showSection('A');").await;
    let near = apart(&mut page).await;
    assert!(near > whole * 1.2, "a section is shown from near: {near} and {whole}");
    let middle = page.place_of("A-2-5").await;
    page.turn_wheel(middle, 200).await;
    let farther = apart(&mut page).await;
    assert!(farther < near * 0.9, "the wheel goes away: {farther} and {near}");
    page.turn_wheel(middle, -200).await;
    assert!(apart(&mut page).await > farther * 1.1, "and comes closer");

    let before = page.place_of("A-2-5").await;
    page.drag((600, 400), (600, 460)).await;
    let after = page.place_of("A-2-5").await;
    assert_eq!((after.0 - before.0, after.1 - before.1), (0, 60), "a drag moves everything with it");
    assert_eq!(page.run("return map.chosen;").await, json!([]), "and chooses nothing");

    for (way, closer) in [("out", false), ("in", true)] {
        let before = apart(&mut page).await;
        page.run(&format!("map.shadowRoot.querySelector('[data-zoom={way}]').click();")).await;
        assert_eq!(apart(&mut page).await > before, closer, "button {way}");
    }
    page.run("map.shadowRoot.querySelector('[role=grid]').focus();").await;
    page.press(&["0"]).await;
    assert!((apart(&mut page).await - whole).abs() < 2.0, "zero shows everything");
    page.press(&["+"]).await;
    assert!(apart(&mut page).await > whole);
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn fingers_come_closer_and_choose() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut page = bare(&house, Screen::PHONE, "{ src: '/v1/events/gala' }").await;
    page.until("map.connection === 'live'").await;
    let place = page.place_of("B-2-5").await;
    let before = apart(&mut page, "B-2-5", "B-2-6").await;
    page.pinch(place, 60, 180).await;
    let after = apart(&mut page, "B-2-5", "B-2-6").await;
    assert!(after > before * 2.0, "the fingers went three times as far apart: {before} and {after}");
    let nearer = page.place_of("B-2-5").await;
    assert!(
        (nearer.0 - place.0).abs() < 40,
        "what is between the fingers stays there: {place:?}, {nearer:?}"
    );
    page.swipe(nearer, (nearer.0, nearer.1 - 50)).await;
    let swiped = page.place_of("B-2-5").await;
    assert_eq!((swiped.0 - nearer.0, swiped.1 - nearer.1), (0, -50), "one finger moves everything with it");
    assert_eq!(page.run("return map.chosen;").await, json!([]), "a pinch chooses nothing");
    page.run("map.showSeats(['B-2-5']);").await;
    let place = page.place_of("B-2-5").await;
    page.tap(place).await;
    page.until("map.chosen.join() === 'B-2-5'").await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn from_afar_a_tap_comes_closer_to_the_section_and_then_chooses() {
    let house = House::open();
    let mut page = bare(&house, Screen::PHONE, "{ src: '/v1/events/arena' }").await;
    page.until("map.connection === 'live'").await;
    let before = apart(&mut page, "206-5-1", "206-5-14").await;
    let place = page.place_of("206-5-7").await;
    page.tap(place).await;
    page.until("map.pointOf('206-5-14').x - map.pointOf('206-5-1').x !== 0").await;
    let after = apart(&mut page, "206-5-1", "206-5-14").await;
    assert!(after > before * 3.0, "the section fills the window: {before} and {after}");
    assert_eq!(page.run("return map.chosen;").await, json!([]), "a section is no seat");
    let place = page.place_of("206-5-7").await;
    page.tap(place).await;
    page.until("map.chosen.join() === '206-5-7'").await;
    page.run("map.showAll();").await;
    assert!((apart(&mut page, "206-5-1", "206-5-14").await - before).abs() < 2.0);
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn told_to_begin_anew_it_reads_everything_again_and_lets_go_of_the_old_stream() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut page = bare(&house, Screen::DESKTOP, "{}").await;
    let watch = "window.streams = [];
        const Source = window.EventSource;
        window.EventSource = class extends Source { constructor(url) { super(url); window.streams.push(this); } };
        map.setAttribute('src', '/v1/events/gala');";
    page.run(watch).await;
    page.until("map.connection === 'live'").await;
    // A change that the stream does not bring is found by reading anew.
    page.run("window.streams[0].close();").await;
    house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    page.run("window.streams[0].dispatchEvent(new MessageEvent('reset', { data: '{}' }));").await;
    page.until("window.streams.length === 2 && map.statusOf('A-1-1') === 'held'").await;
    page.until("map.connection === 'live'").await;
    assert_eq!(how_often(&mut page, "ready").await, 1, "it is the same event");
    house.hold("gala", ItemSpec::seat("A-1-2"), "somebody").await;
    page.until("map.statusOf('A-1-2') === 'held'").await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn a_page_nobody_looks_at_lets_go_of_its_stream_and_catches_up_when_it_is_seen_again() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut page = bare(&house, Screen::DESKTOP, "{ src: '/v1/events/gala' }").await;
    page.until("map.connection === 'live'").await;
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'));"
        )
    };
    // A short look elsewhere costs nothing.
    page.run(&hide(true)).await;
    page.run(&hide(false)).await;
    assert_eq!(page.run("return map.connection;").await, "live");
    page.run(&hide(true)).await;
    page.until("map.connection === 'connecting'").await;
    house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(page.sees("A-1-1").await, "free", "it does not listen any more");
    page.run(&hide(false)).await;
    page.until_sees("A-1-1", "held").await;
    page.until("map.connection === 'live'").await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn a_page_that_chooses_other_colours_sees_them() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut page = bare(&house, Screen::DESKTOP, "{ src: '/v1/events/gala', mine: 'A-1-1' }").await;
    page.until("map.connection === 'live'").await;
    page.run("map.showSeats(['A-1-1', 'A-1-2']);").await;
    page.place_of("A-1-1").await;
    // The colour of a seat below its middle, where a number or a tick may be.
    let colours = "const canvases = [...map.shadowRoot.querySelectorAll('canvas')];
        const ratio = canvases[0].width / map.clientWidth;
        const copy = new OffscreenCanvas(canvases[0].width, canvases[0].height).getContext('2d', { willReadFrequently: true });
        for (const canvas of canvases) copy.drawImage(canvas, 0, 0);
        const below = Math.hypot(map.pointOf('A-1-2').x - map.pointOf('A-1-1').x, map.pointOf('A-1-2').y - map.pointOf('A-1-1').y) * 0.32;
        return ['A-1-1', 'A-1-2'].map((seat) => [...copy.getImageData(Math.round(map.pointOf(seat).x * ratio), Math.round((map.pointOf(seat).y + below) * ratio), 1, 1).data.slice(0, 3)]);";
    assert_eq!(page.run(colours).await, json!([[10, 143, 91], [79, 70, 229]]), "mine, and free");
    page.run("map.style.setProperty('--seat-map-free', '#ff0000'); map.style.setProperty('--seat-map-mine', '#0000ff'); map.restyle(); await new Promise((next) => setTimeout(next, 300));").await;
    assert_eq!(page.run(colours).await, json!([[0, 0, 255], [255, 0, 0]]));
    page.assert_no_complaints().await;
}
