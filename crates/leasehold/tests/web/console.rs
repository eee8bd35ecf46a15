//! The operator's console: every view, every action, and the answer from the log.

use leasehold_api::ItemSpec;
use leasehold_client::Request;
use leasehold_testkit::Screen;
use serde_json::json;

use crate::accessibility::assert_accessible;
use crate::house::{House, Person, rules};

async fn operator(house: &House, view: &str, event: &str, screen: Screen) -> Person {
    let mut operator = Person::sit_down(screen).await;
    operator.open(&house.url(&format!("/console#{view}"))).await;
    operator.until_there(&format!("#view[data-showing={view}]")).await;
    choose(&mut operator, event).await;
    operator
}

/// Has the console show an event; which one it shows at first is the server's choice.
pub(crate) async fn choose(operator: &mut Person, event: &str) {
    let choose = format!(
        "const select = document.getElementById('event');
         select.value = {event:?};
         select.dispatchEvent(new Event('change'));
         return select.value;"
    );
    operator.until(&format!("document.querySelector('#event option[value={event:?}]')")).await;
    assert_eq!(operator.run(&choose).await, event);
}

async fn find(operator: &mut Person, by: &str, what: &str) {
    operator.run(&format!("document.getElementById('find-kind').value = {by:?};")).await;
    operator.fill("#find-text", what).await;
    operator.click("#find").await;
}

#[tokio::test]
async fn an_operator_takes_a_hold_back_with_a_reason_and_the_log_says_why_it_was_lost() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    house.hold("gala", ItemSpec::seat("A-1-2"), "ada").await;
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.until_says("ada").await;
    operator.until("document.getElementById('map').connection === 'live'").await;
    operator.click_seat("A-1-2").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Held'").await;
    operator.until_says("Section A, row 1, seat 2").await;

    operator.click("[data-action=revoke]").await;
    operator.until_there("dialog[open]").await;
    operator.fill("dialog input", "camera position").await;
    operator.click("#dialog-go").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Free'").await;
    operator.until_says("an operator took it away: “camera position”").await;
    assert_eq!(house.seats("gala").await, (80, 0, 0));

    // Somebody else gets it. "Why did I lose A-1-2?" is answered by name, seat and order.
    let won = house.hold("gala", ItemSpec::seat("A-1-2"), "grace").await;
    let confirm =
        Request::post(format!("/v1/holds/{}/confirm", won.hold_id), &json!({"order_ref": "order-7"}));
    let sold = house.client().send(confirm.secret(won.secret.unwrap())).await.unwrap();
    assert_eq!(sold.status, 201);
    find(&mut operator, "holder", "ada").await;
    operator.until_says("Taken away by an operator").await;
    find(&mut operator, "order", "order-7").await;
    operator.until("document.getElementById('found')?.innerText.includes('grace')").await;
    find(&mut operator, "seat", "A-1-2").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Sold'").await;
    operator.until("document.getElementById('fates').innerText.includes('grace bought it')").await;
    operator.until("document.getElementById('fates').innerText.includes('ada had it')").await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn standing_tickets_are_taken_back_from_the_list_of_holds() {
    let house = House::open();
    house.sell("gala", 20, rules(300)).await;
    house.hold("gala", ItemSpec::pool("floor", 4), "ada").await;
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.click("tbody .link").await;
    operator.until("document.getElementById('found')?.innerText.includes('floor × 4')").await;
    // What is left is counted down before one's eyes.
    let left = "document.querySelector('#found [data-ends]').textContent";
    let shown = operator.run(&format!("return {left};")).await;
    operator.until(&format!("{left} !== {shown} && /^4:\\d\\d$/.test({left})")).await;
    operator.click("#found [data-action=revoke]").await;
    operator.fill("dialog input", "the floor is full").await;
    operator.click("#dialog-go").await;
    operator.until("document.querySelector('#found .state').textContent === 'revoked'").await;
    operator.until_says("the floor is full").await;
    let view = house.client().send(Request::get("/v1/events/gala")).await.unwrap();
    let view: serde_json::Value = view.json().unwrap();
    assert_eq!(view["pools"][0]["free"], 20);
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn a_late_payer_reads_that_the_money_came_too_late() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let late = house.hold("gala", ItemSpec::seat("A-1-2"), "ada").await;
    let mut client = house.client();
    let secret = late.secret.unwrap();
    let begin =
        Request::post(format!("/v1/holds/{}/payment", late.hold_id), &json!({"payment_ref": "pay-1"}));
    assert_eq!(client.send(begin.secret(secret.clone())).await.unwrap().status, 200);
    let revoke = Request::post(format!("/v1/holds/{}/revoke", late.hold_id), &json!({}));
    assert_eq!(client.send(revoke).await.unwrap().status, 200);
    let held = house.hold("gala", ItemSpec::seat("A-1-2"), "grace").await;
    let confirm =
        Request::post(format!("/v1/holds/{}/confirm", late.hold_id), &json!({"payment_ref": "pay-1"}));
    assert_eq!(client.send(confirm.secret(secret)).await.unwrap().status, 409);
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.until("document.getElementById('map').connection === 'live'").await;
    find(&mut operator, "seat", "A-1-2").await;
    operator.until_says("Payment begun · ada").await;
    operator.until_says("Payment came too late · ada").await;
    let fate = "document.querySelector('#fates li:last-child').innerText";
    operator.until(&format!("{fate}.includes('the money came too late and is to be given back')")).await;
    // Until when, by the operator's own clock, and how long that is.
    let until = format!(
        "document.querySelector('#owner').innerText.includes(new Date({:?}).toLocaleTimeString('en-GB'))",
        held.expires_at
    );
    operator.until(&until).await;
    let left = "document.querySelector('#owner [data-ends]').textContent";
    let shown = operator.run(&format!("return {left};")).await;
    operator.until(&format!("{left} !== {shown} && /^\\d:\\d\\d$/.test({left})")).await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn the_seat_that_is_shown_follows_its_owners_however_fast_they_change() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let first = house.hold("gala", ItemSpec::seat("A-1-2"), "ada").await;
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.until("document.getElementById('map').connection === 'live'").await;
    operator.click_seat("A-1-2").await;
    operator.until("document.getElementById('owner')?.innerText.includes('ada')").await;
    // Free and held again at once: the seat looks the same, and another one has it.
    let release = Request::delete(format!("/v1/holds/{}", first.hold_id)).secret(first.secret.unwrap());
    assert_eq!(house.client().send(release).await.unwrap().status, 200);
    let second = house.hold("gala", ItemSpec::seat("A-1-2"), "grace").await;
    operator.until("document.getElementById('owner')?.innerText.includes('grace')").await;
    let confirm = Request::post(format!("/v1/holds/{}/confirm", second.hold_id), &json!({}));
    assert_eq!(house.client().send(confirm.secret(second.secret.unwrap())).await.unwrap().status, 201);
    operator.until("document.getElementById('owner')?.dataset.state === 'Sold'").await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn an_operator_blocks_seats_with_a_reason_and_ends_the_block() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.until("document.getElementById('map').connection === 'live'").await;
    find(&mut operator, "seat", "B-2-2").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Free'").await;
    operator.click("[data-action=block]").await;
    operator.fill("dialog input[name=seats]", "B-2-2 B-2-3").await;
    operator.fill("dialog input[name=reason]", "for the wheelchairs").await;
    operator.click("#dialog-go").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Blocked'").await;
    operator.until_says("for the wheelchairs").await;
    operator.until_sees("B-2-3", "blocked").await;
    let refused = house.try_hold("gala", ItemSpec::seat("B-2-3"), "ada").await;
    assert_eq!(refused.code().as_deref(), Some("seat-taken"));

    operator.click("#owner [data-action=unblock]").await;
    operator.click("#dialog-go").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Free'").await;
    operator.until_says("Block ended").await;
    operator.until_says("an operator (blocked: “for the wheelchairs”) had it from").await;
    // Called off, nothing happens.
    operator.click("[data-action=block]").await;
    operator.click("#dialog-cancel").await;
    assert_eq!(house.seats("gala").await, (80, 0, 0));
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn standing_tickets_are_kept_from_sale_and_whatever_is_kept_is_listed() {
    let house = House::open();
    house.sell("gala", 20, rules(300)).await;
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.expect_in_log("status of 409");
    operator.until("document.getElementById('map').connection === 'live'").await;
    operator.until_says("Nothing is kept from sale.").await;
    let floor = async || {
        let view = house.client().send(Request::get("/v1/events/gala")).await.unwrap();
        let view: serde_json::Value = view.json().unwrap();
        (view["pools"][0]["free"].as_u64().unwrap(), view["pools"][0]["blocked"].as_u64().unwrap())
    };
    // More than there are: nothing is kept, and it is said.
    for (quantity, reason) in [("21", "too many"), ("5", "for the band")] {
        operator.click("#block-standing").await;
        operator.fill("dialog input[name=quantity]", quantity).await;
        operator.fill("dialog input[name=reason]", reason).await;
        operator.click("#dialog-go").await;
        if quantity == "21" {
            operator.until_says("That did not work").await;
            assert_eq!(floor().await, (20, 0));
        }
    }
    let listed = "document.getElementById('blocks').innerText";
    operator.until(&format!("{listed}.includes('floor × 5') && {listed}.includes('for the band')")).await;
    assert_eq!(floor().await, (15, 5));
    // What was kept elsewhere is listed too.
    let body = json!({"seats": ["A-1-1", "A-1-2"], "reason": "camera"});
    let blocked = house.client().send(Request::post("/v1/events/gala/blocks", &body)).await.unwrap();
    assert_eq!(blocked.status, 201);
    operator.until(&format!("{listed}.includes('A-1-1, A-1-2') && {listed}.includes('2 of them.')")).await;
    assert_accessible(&mut operator, "what is kept from sale").await;

    for (what, left) in [("floor", "1 of them."), ("A-1-1", "Nothing is kept from sale.")] {
        let end = format!(
            "[...document.querySelectorAll('#blocks tbody tr')].find((row) => row.innerText.includes({what:?}))
                .querySelector('[data-action=unblock]').click();"
        );
        operator.run(&end).await;
        operator.click("#dialog-go").await;
        operator.until(&format!("{listed}.includes({left:?}) && !{listed}.includes({what:?})")).await;
    }
    assert_eq!(floor().await, (20, 0));
    assert_eq!(house.seats("gala").await, (80, 0, 0));
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn what_is_not_there_and_what_is_refused_is_said() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    operator.expect_in_log("status of 404");
    operator.expect_in_log("status of 409");
    operator.until("document.getElementById('map').connection === 'live'").await;
    find(&mut operator, "seat", "Z-9").await;
    operator.until_says("There is no seat “Z-9” in this event.").await;
    find(&mut operator, "holder", "nobody").await;
    operator.until_says("The log has nothing about this holder.").await;
    find(&mut operator, "seat", "A-1-1").await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Free'").await;
    house.hold("gala", ItemSpec::seat("A-4-4"), "ada").await;
    operator.click("[data-action=block]").await;
    operator.fill("dialog input[name=seats]", "A-1-1 A-4-4").await;
    operator.click("#dialog-go").await;
    operator.until_says("That did not work: the seat is taken").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0), "all or none");
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn sales_are_counted_and_drawn_as_they_happen() {
    let house = House::open();
    house.sell("gala", 20, rules(300)).await;
    let mut operator = operator(&house, "sales", "gala", Screen::DESKTOP).await;
    operator
        .until("[...document.querySelectorAll('tbody tr')].some((row) => row.innerText.includes('gala'))")
        .await;
    let row =
        "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('gala')).innerText";
    // The lines have begun, so that what follows is a rise in them.
    let begun =
        "document.querySelectorAll('#server-sales .chart path.line')[0].getAttribute('d').includes('L')";
    operator.until(begun).await;
    let hold = house.hold("gala", ItemSpec::seat("A-1-1"), "ada").await;
    assert_eq!(house.try_hold("gala", ItemSpec::seat("A-1-1"), "grace").await.status, 409);
    operator.until(&format!("/\\b99\\b/.test({row})")).await;
    let confirm = Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &json!({}));
    assert_eq!(house.client().send(confirm.secret(hold.secret.unwrap())).await.unwrap().status, 201);
    let short =
        Request::post("/v1/events/gala/holds", &json!({"items": [{"seat": "A-1-2"}], "ttl_ms": 1_000}));
    assert_eq!(house.client().send(short).await.unwrap().status, 201);
    // Granted, sold, expired and refused rose from nothing; times and sizes of commits were drawn.
    for (line, name) in ["granted", "sold", "expired", "refused"].iter().enumerate() {
        let heights = format!(
            "new Set([...document.querySelectorAll('#server-sales .chart path.line')[{line}].getAttribute('d')
                .matchAll(/[ML][0-9.]+ ([0-9.]+)/g)].map(([, height]) => height)).size > 1 /* {name} */"
        );
        operator.until(&heights).await;
    }
    for (line, name) in ["half", "99 of 100", "commits", "size"].iter().enumerate() {
        let path = format!(
            "document.querySelectorAll('#server-sales .chart path.line')[{}].getAttribute('d')",
            4 + line
        );
        operator.until(&format!("{path}.startsWith('M') /* {name} */")).await;
    }
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn the_chosen_events_own_sales_are_drawn_and_no_other_events() {
    let house = House::open();
    house.sell("gala", 20, rules(300)).await;
    house.sell("opera", 0, rules(300)).await;
    let mut operator = operator(&house, "sales", "gala", Screen::DESKTOP).await;
    operator.until("document.getElementById('event-name').textContent === 'The gala evening'").await;
    // Whether a line of the chosen event ever rose above nothing.
    let rose = |line: usize| {
        format!(
            "new Set([...document.querySelectorAll('#event-sales .chart path.line')[{line}].getAttribute('d')
                .matchAll(/[ML][0-9.]+ ([0-9.]+)/g)].map(([, height]) => height)).size > 1"
        )
    };
    let begun =
        "document.querySelectorAll('#event-sales .chart path.line')[0].getAttribute('d').includes('L')";
    operator.until(begun).await;
    let hold = house.hold("gala", ItemSpec::seat("A-1-1"), "ada").await;
    let confirm = Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &json!({}));
    assert_eq!(house.client().send(confirm.secret(hold.secret.unwrap())).await.unwrap().status, 201);
    let short =
        Request::post("/v1/events/gala/holds", &json!({"items": [{"seat": "A-1-2"}], "ttl_ms": 1_000}));
    assert_eq!(house.client().send(short).await.unwrap().status, 201);
    house.hold("gala", ItemSpec::pool("floor", 3), "grace").await;
    for line in ["granted", "sold", "expired", "sold in all", "in carts", "free"].iter().enumerate() {
        operator.until(&format!("{} /* {} */", rose(line.0), line.1)).await;
    }
    let tile = |of: &str| format!("document.querySelector('#event-sales [data-of={of}]').textContent");
    operator.until(&format!("{} === '3' && {} === '1'", tile("held"), tile("owned"))).await;

    // Another event has lines of its own, which what happens elsewhere does not touch.
    let choose = "const select = document.getElementById('event');
         select.value = 'opera';
         select.dispatchEvent(new Event('change'));";
    operator.run(choose).await;
    operator.until("document.getElementById('event-name').textContent === 'The opera evening'").await;
    operator.until(begun).await;
    house.hold("gala", ItemSpec::seat("A-2-1"), "ada").await;
    let server = "document.querySelector('#server-sales [data-of=granted]').textContent !== '0'";
    operator.until(server).await;
    operator.run("await new Promise((next) => setTimeout(next, 2_500));").await;
    assert_eq!(operator.run(&format!("return {};", rose(0))).await, false, "gala's hold is not opera's");
    assert_eq!(operator.run(&format!("return {};", tile("held"))).await, "0");
    house.hold("opera", ItemSpec::seat("A-1-1"), "ada").await;
    operator.until(&rose(0)).await;
    // The table, which is read now and then, says the same of the chosen event as the figures above it.
    let stop = "const send = window.fetch;
        window.fetch = async (path, ...rest) => (path.startsWith('/v1/events?') ? new Promise(() => {}) : send(path, ...rest));";
    operator.run(stop).await;
    house.hold("opera", ItemSpec::seat("A-1-2"), "ada").await;
    let figures =
        "[...document.querySelectorAll('tr.chosen .number')].map((cell) => cell.textContent).join()";
    operator.until(&format!("{figures} === '0,2,78,0' && {} === '2'", tile("held"))).await;
    // A row of the table leads to the event's seats.
    operator
        .run("[...document.querySelectorAll('tbody .link')].find((link) => link.textContent === 'The gala evening').click();")
        .await;
    operator.until_there("#view[data-showing=seats]").await;
    assert_eq!(operator.run("return document.getElementById('event').value;").await, "gala");
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn seconds_without_an_answer_are_a_gap_as_long_as_they_were() {
    let mut house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut operator = operator(&house, "sales", "gala", Screen::DESKTOP).await;
    operator.expect_in_log("net::ERR_");
    let lines = ["#event-sales .chart:last-child path.line", "#server-sales path.line"];
    for line in lines {
        operator.until(&format!("document.querySelector({line:?}).getAttribute('d').includes('L')")).await;
    }
    house.server.kill9();
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    house.come_back();
    for line in lines {
        // The widest gap between two parts of the line, in seconds of the axis below it.
        let gap = format!(
            "((line) => {{
               const parts = line.getAttribute('d').slice(1).split('M').map((part) => part.split('L').map(parseFloat));
               const across = line.ownerSVGElement.querySelector('.grid line');
               const span = parseInt(line.ownerSVGElement.querySelector('text[text-anchor=start]').textContent);
               const pixels = Math.max(0, ...parts.slice(1).map((part, place) => part[0] - parts[place].at(-1)));
               return pixels / (across.x2.baseVal.value - across.x1.baseVal.value) * span;
             }})(document.querySelector({line:?}))"
        );
        operator.until(&format!("{gap} >= 5")).await;
    }
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn more_events_than_fit_a_page_are_shown_when_asked_for() {
    let house = House::open();
    for number in 0..101 {
        let event = leasehold_api::CreateEvent {
            id: format!("evening-{number}"),
            pools: vec![leasehold_api::PoolSpec { id: "floor".to_owned(), capacity: 1 }],
            ..leasehold_api::CreateEvent::default()
        };
        house.create(&event).await;
    }
    let mut operator = operator(&house, "sales", "arena", Screen::DESKTOP).await;
    let rows = |count: usize| format!("document.querySelectorAll('#view tbody tr').length === {count}");
    operator.until(&rows(100)).await;
    operator.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'More events').click();").await;
    operator.until(&rows(102)).await;
    operator.until("[...document.querySelectorAll('button')].find((one) => one.textContent === 'More events').hidden").await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn locks_are_listed_with_owner_age_fence_waiters_and_advice() {
    let house = House::open();
    let mut client = house.client();
    for number in 0..20 {
        let name = format!("/v1/locks/report:{number}");
        let taken = client.send(Request::post(name.as_str(), &json!({"ttl_ms": 60_000}))).await.unwrap();
        let grant: leasehold_api::LockGrant = taken.json().unwrap();
        let released = client.send(Request::delete(name).header("lock-owner", grant.owner)).await.unwrap();
        assert_eq!(released.status, 200);
    }
    let body = json!({"ttl_ms": 60_000, "label": "host-7/cron"});
    let taken = client.send(Request::post("/v1/locks/report:nightly", &body)).await.unwrap();
    let grant: leasehold_api::LockGrant = taken.json().unwrap();
    let mut waiter = house.client();
    let waiting = tokio::spawn(async move {
        waiter.send(Request::post("/v1/locks/report:nightly", &json!({"wait_ms": 60_000}))).await
    });
    let mut operator = operator(&house, "locks", "arena", Screen::DESKTOP).await;
    let row = "(document.querySelector('#locks tbody tr')?.innerText ?? '')";
    operator.until(&format!("{row}.includes('report:nightly') && {row}.includes('host-7/cron')")).await;
    operator.until("document.querySelector('#locks tbody tr td:last-child')?.innerText === '1'").await;
    let cells = "return [...document.querySelectorAll('#locks tbody tr:first-child td')].map((cell) => cell.innerText);";
    let cells = operator.run(cells).await;
    let seconds = |cell: usize| {
        let (minutes, seconds) = cells[cell].as_str().unwrap().split_once(':').expect("minutes and seconds");
        minutes.parse::<u64>().unwrap() * 60 + seconds.parse::<u64>().unwrap()
    };
    assert!((58..=61).contains(&(seconds(1) + seconds(2))), "age and rest are the lease: {cells}");
    assert!(seconds(2) > 0, "{cells}");
    assert_eq!(cells[3], grant.fence.unwrap().to_string(), "{cells}");
    operator.until_says("3,000 ms").await;
    let rows = |count: usize| format!("document.querySelectorAll('#locks tbody tr').length === {count}");
    let other = client.send(Request::post("/v1/locks/upload:1", &json!({"ttl_ms": 60_000}))).await.unwrap();
    assert_eq!(other.status, 201);
    operator.until(&rows(2)).await;
    operator.fill("#prefix", "report:n").await;
    operator.until(&format!("{} && {row}.includes('report:nightly')", rows(1))).await;
    operator.fill("#prefix", "other").await;
    operator.until_says("No lock is held").await;
    waiting.abort();
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn health_shows_the_store_recent_problems_and_refunds() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    // A second payment for a sold hold must be given back.
    let hold = house.hold("gala", ItemSpec::seat("A-1-1"), "ada").await;
    for (payment, status) in [("pay-1", 201), ("pay-2", 409)] {
        let confirm =
            Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &json!({"payment_ref": payment}));
        let answer = house.client().send(confirm.secret(hold.secret.clone().unwrap())).await.unwrap();
        assert_eq!(answer.status, status);
    }
    let mut operator = operator(&house, "health", "gala", Screen::DESKTOP).await;
    operator.until("document.getElementById('ready').textContent === 'Takes work'").await;
    operator.until_says("Commands waiting").await;
    operator.until_says("Nothing went wrong since this server was started.").await;
    operator.until_says("pay-2").await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn what_went_wrong_is_listed_and_a_server_that_is_gone_takes_no_work() {
    let mut house = House::serving(&["--locks", "redis://127.0.0.1:1"]);
    house.sell("gala", 0, rules(300)).await;
    let mut client = house.client().with_timeout(std::time::Duration::from_secs(60));
    let lock = Request::post("/v1/locks/job", &json!({"wait_ms": 0})).header("x-request-id", "the-one");
    assert_eq!(client.send(lock).await.unwrap().status, 503);
    let mut operator = operator(&house, "health", "gala", Screen::DESKTOP).await;
    operator.expect_in_log("net::ERR_");
    let row =
        "[...document.querySelectorAll('tr')].find((row) => row.innerText.includes('the-one'))?.innerText";
    operator.until(&format!("{row}?.includes('POST /v1/locks/job') && {row}.includes('503')")).await;
    // It asks again a few times before it says so; here it does not wait long in between.
    operator.expect_in_log("status of 503");
    operator
        .run("const wait = window.setTimeout; window.setTimeout = (work, ms) => wait(work, ms / 50);")
        .await;
    operator.click(".tabs a[href='#locks']").await;
    operator.until_says("The store of the locks does not answer").await;
    operator.click(".tabs a[href='#health']").await;
    house.server.kill9();
    operator.until("document.getElementById('ready').textContent === 'Takes no work'").await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn every_way_to_lose_a_seat_is_told_apart() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut client = house.client();
    let short = json!({"items": [{"seat": "A-1-1"}], "holder": "ada", "ttl_ms": 1_000});
    assert_eq!(client.send(Request::post("/v1/events/gala/holds", &short)).await.unwrap().status, 201);
    while house.seats("gala").await.1 > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let given_back = house.hold("gala", ItemSpec::seat("A-1-1"), "grace").await;
    let release =
        Request::delete(format!("/v1/holds/{}", given_back.hold_id)).secret(given_back.secret.unwrap());
    assert_eq!(client.send(release).await.unwrap().status, 200);
    let sold = house.hold("gala", ItemSpec::seat("A-1-1"), "edith").await;
    let confirm =
        Request::post(format!("/v1/holds/{}/confirm", sold.hold_id), &json!({"payment_ref": "pay-9"}));
    let booking = client.send(confirm.secret(sold.secret.unwrap())).await.unwrap();
    let booking: leasehold_api::BookingView = booking.json().unwrap();
    let cancel = Request::post(format!("/v1/bookings/{}/cancel", booking.booking_id), &json!({}));
    assert_eq!(client.send(cancel).await.unwrap().status, 200);

    let mut operator = operator(&house, "seats", "gala", Screen::DESKTOP).await;
    find(&mut operator, "seat", "A-1-1").await;
    operator.until_there("#fates").await;
    let fates = operator.text_of("#fates").await;
    for (who, why) in [
        ("ada", "the time ran out before it was paid"),
        ("grace", "the buyer gave it back"),
        ("edith", "the sale was cancelled"),
    ] {
        let line = fates.lines().find(|line| line.contains(who)).unwrap_or_default();
        assert!(line.contains(why), "{who}: {fates}");
    }
    find(&mut operator, "order", "pay-9").await;
    operator.until("document.getElementById('found')?.innerText.includes('edith')").await;
    find(&mut operator, "hold", &given_back.hold_id).await;
    operator.until("document.getElementById('found')?.innerText.includes('grace')").await;
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn a_rush_is_started_from_the_console_and_its_outcome_is_drawn() {
    let house = House::open();
    let mut operator = operator(&house, "rush", "arena", Screen::DESKTOP).await;
    operator.click("#start-rush").await;
    operator.until_there("#verdict").await;
    assert_eq!(operator.text_of("#verdict").await, "Passed: exactly 3 of 3 seats sold");
    assert_eq!(operator.run("return document.querySelectorAll('.crowd .won').length;").await, 3);
    assert_eq!(operator.run("return document.querySelectorAll('.crowd .lost').length;").await, 197);
    // It is over: its sale can still be looked at, and nobody is sent there to buy.
    operator
        .until("document.querySelector('#event optgroup[label=Over] option')?.value.startsWith('rush-')")
        .await;
    operator.open(&house.url("/")).await;
    operator.until_says("A night at the arena").await;
    assert_eq!(operator.run("return document.querySelectorAll('#events li').length;").await, 1);
    operator.assert_no_complaints().await;
}

async fn every_view_is_accessible(screen: Screen) {
    let house = House::open();
    house.sell("gala", 10, rules(300)).await;
    house.hold("gala", ItemSpec::seat("A-1-1"), "ada").await;
    let lock = json!({"ttl_ms": 60_000, "label": "host-7/cron"});
    assert_eq!(
        house.client().send(Request::post("/v1/locks/report:nightly", &lock)).await.unwrap().status,
        201
    );
    let mut operator = operator(&house, "sales", "gala", screen).await;
    operator.until("document.querySelectorAll('.chart path.line')[0].getAttribute('d').includes('L')").await;
    assert_accessible(&mut operator, "sales").await;
    for view in ["seats", "locks", "health", "rush"] {
        operator.click(&format!(".tabs a[href='#{view}']")).await;
        operator.until_there(&format!("#view[data-showing={view}]")).await;
        match view {
            "seats" => {
                operator.until("document.getElementById('map').connection === 'live'").await;
                find(&mut operator, "seat", "A-1-1").await;
                operator.until_there("#owner").await;
                assert_accessible(&mut operator, "a seat").await;
                operator.click("[data-action=revoke]").await;
                assert_accessible(&mut operator, "the dialog").await;
                operator.click("#dialog-cancel").await;
            }
            "locks" => operator.until_says("host-7/cron").await,
            "health" => operator.until_says("Takes work").await,
            _ => {}
        }
        assert_accessible(&mut operator, view).await;
    }
    operator.assert_no_complaints().await;
}

#[tokio::test]
async fn axe_finds_nothing_serious_in_the_console() {
    every_view_is_accessible(Screen::DESKTOP).await;
}

#[tokio::test]
async fn axe_finds_nothing_serious_in_the_console_on_a_phone_in_the_dark() {
    every_view_is_accessible(Screen::PHONE.dark()).await;
}

#[tokio::test]
async fn the_console_works_with_the_keyboard_alone() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    house.hold("gala", ItemSpec::seat("A-1-1"), "ada").await;
    let mut operator = operator(&house, "sales", "gala", Screen::DESKTOP).await;
    crate::keyboard::tab_to(&mut operator, ".tabs a[href='#seats']").await;
    operator.press(&["Enter"]).await;
    operator.until_there("#view[data-showing=seats]").await;
    operator.until("document.getElementById('map').connection === 'live'").await;
    crate::keyboard::tab_to(&mut operator, "seat-map").await;
    operator.press(&["Enter"]).await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Held'").await;
    crate::keyboard::tab_to(&mut operator, "[data-action=revoke]").await;
    operator.press(&["Enter"]).await;
    operator.until_there("dialog[open]").await;
    operator.press(&["o", "u", "t", "Enter"]).await;
    operator.until("document.getElementById('owner')?.dataset.state === 'Free'").await;
    operator.until_says("“out”").await;
    operator.assert_no_complaints().await;
}
