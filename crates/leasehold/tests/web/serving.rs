//! How the pages are served: their policy, their tags, and that only the demonstration lets anybody pay with nothing.

use leasehold_client::Request;
use leasehold_testkit::Screen;

use crate::house::{House, rules};

#[tokio::test]
async fn a_server_in_production_holds_and_lets_nobody_confirm_without_paying() {
    let house = House::serving(&[]);
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.until_there("#no-checkout").await;
    assert_eq!(buyer.run("return document.getElementById('pay') === null;").await, true);
    buyer.click("#release").await;
    buyer.until_says("Given back").await;

    // The shop takes the payment, and the page follows.
    buyer.take(&["A-1-2"]).await;
    let cart = buyer.run("return JSON.parse(localStorage.getItem('leasehold:cart:gala'));").await;
    let hold = format!("/v1/holds/{}", cart["hold_id"].as_str().unwrap());
    let secret = cart["secret"].as_str().unwrap();
    let payment = serde_json::json!({"payment_ref": "pay-1"});
    let begin = Request::post(format!("{hold}/payment"), &payment).secret(secret);
    assert_eq!(house.client().send(begin).await.unwrap().status, 200);
    buyer.reload().await;
    buyer.until_says("Payment in progress").await;
    let confirm = Request::post(format!("{hold}/confirm"), &payment).secret(secret);
    assert_eq!(house.client().send(confirm).await.unwrap().status, 201);
    buyer.until_there("#done").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_violation_of_the_policy_and_a_script_that_fails_are_seen() {
    let house = House::serving(&[]);
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer
        .run("const image = new Image(); image.src = 'http://127.0.0.2/x.png'; document.body.append(image);")
        .await;
    buyer.run("setTimeout(() => { throw new Error('on purpose'); });").await;
    buyer.run("const style = document.createElement('style'); style.textContent = 'p {}'; document.head.append(style);").await;
    let seen = buyer.complaints().await.join("\n");
    for words in ["img-src", "on purpose", "style-src"] {
        assert!(seen.contains(words), "no word of {words} in:\n{seen}");
    }
}

#[tokio::test]
async fn pages_have_a_strict_policy_a_tag_and_are_compressed() {
    let house = House::serving(&[]);
    let mut client = house.client();
    for path in ["/", "/console", "/events/anything", "/web/seat-map.js", "/web/base.css"] {
        let request = Request::get(path).header("accept-encoding", "gzip");
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
        let header = |name: &str| answer.headers.get(name).map_or("", |value| value.to_str().unwrap());
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(header("content-encoding"), "gzip");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "no-cache");
        let again = Request::get(path).header("if-none-match", header("etag"));
        assert_eq!(client.send(again).await.unwrap().status, 304, "{path}");
    }
    for path in
        ["/web/", "/web/event.html", "/web/../Cargo.toml", "/web/nothing.js", "/events/", "/events/a/b"]
    {
        assert_eq!(client.send(Request::get(path)).await.unwrap().status, 404, "{path}");
    }
    assert_eq!(client.send(Request::post("/web/base.css", &())).await.unwrap().status, 405);
}

#[tokio::test]
async fn the_lobby_leads_to_every_event() {
    let house = House::open();
    house.sell("gala", 20, rules(120)).await;
    let mut person = crate::house::Person::sit_down(Screen::PHONE).await;
    person.open(&house.url("/")).await;
    person.until_says("The gala evening").await;
    person.until_says("100 places free").await;
    crate::accessibility::assert_accessible(&mut person, "the lobby").await;
    person.click("a[href='/events/gala']").await;
    person.until_there("#hold-chosen").await;
    person.assert_no_complaints().await;
}
