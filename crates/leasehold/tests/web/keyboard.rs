//! Everything without a mouse.

use leasehold_testkit::Screen;

use crate::house::{House, Person, rules};

/// Tabs on until an element has the focus, as a person would who does not know how far it is.
pub(crate) async fn tab_to(person: &mut Person, selector: &str) {
    let focused = format!("return document.activeElement?.matches({selector:?}) ?? false;");
    for _ in 0..60 {
        if person.run(&focused).await == true {
            return;
        }
        person.press(&["Tab"]).await;
    }
    panic!("{selector} cannot be reached with the Tab key");
}

/// Waits until a screen reader would say this of the seat that the keys are at. The map follows them with its next frame.
async fn hears(person: &mut Person, words: &str) {
    let map = "document.getElementById('map').shadowRoot";
    let at = format!("{map}.querySelector('[role=grid]').getAttribute('aria-activedescendant')");
    person.until(&format!("{map}.getElementById({at}).getAttribute('aria-label') === {words:?}")).await;
}

#[tokio::test]
async fn a_ticket_is_bought_with_the_keyboard_alone() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    tab_to(&mut buyer, "seat-map").await;
    hears(&mut buyer, "Section A, row 1, seat 1, free").await;
    buyer.press(&["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]).await;
    buyer.until("document.querySelectorAll('.chip').length === 1").await;
    hears(&mut buyer, "Section A, row 2, seat 3, chosen").await;
    buyer.press(&["PageDown", "End", "Space"]).await;
    buyer.until("document.querySelectorAll('.chip').length === 2").await;
    hears(&mut buyer, "Section B, row 1, seat 10, chosen").await;

    tab_to(&mut buyer, "#hold-chosen").await;
    buyer.press(&["Enter"]).await;
    buyer.until_there("#countdown").await;
    // The focus is where the new things are, so the next key goes on from there.
    buyer.until("document.activeElement.matches('#view h2')").await;
    tab_to(&mut buyer, "#pay").await;
    buyer.press(&["Enter"]).await;
    buyer.until_there("#pay-now").await;
    tab_to(&mut buyer, "input[name=bank]").await;
    buyer.press(&["ArrowDown", "ArrowUp"]).await;
    tab_to(&mut buyer, "#pay-now").await;
    buyer.press(&["Enter"]).await;
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (78, 0, 2));
    buyer.assert_no_complaints().await;
}
