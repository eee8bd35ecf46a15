//! The incident this project began with, played twice: a naive lock sells more than there is, ours does not.
//!
//! A hundred bottles. A service behind the lock answers slower than the lock lives; the lock is deleted
//! without asking whose it is; the stock is read, compared and written back; buyers click twice within 50 ms
//! and ask again after a time-out.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_api::{ConfirmHold, CreateEvent, CreateHold, ItemSpec, PolicySpec, PoolSpec};
use leasehold_client::Request;
use leasehold_testkit::{Answer, Granted, Outcome, Random, RecordingClient, Stage};
use tokio::task::JoinSet;

const BOTTLES: u32 = 100;

mod naive {
    //! What was in production: `SET NX PX`, `GET`, `DEL`, and a number that is read and written back.

    use std::sync::mpsc;

    use super::{Arc, BOTTLES, BUYERS, Duration, HashMap, Instant, Mutex};

    const LOCK_TTL: Duration = Duration::from_millis(10);
    /// The user service on a bad day.
    const DEPENDENCY: Duration = Duration::from_millis(25);
    const DOUBLE_CLICK: Duration = Duration::from_millis(40);
    const TIME_OUT: Duration = Duration::from_millis(200);

    /// A key-value store with the three commands that were used.
    #[derive(Default)]
    pub(super) struct Store(Mutex<HashMap<String, (String, Option<Instant>)>>);

    impl Store {
        fn set_nx_px(&self, key: &str, value: &str, ttl: Duration) -> bool {
            let mut map = self.0.lock().unwrap();
            let taken =
                map.get(key).is_some_and(|(_, until)| until.is_none_or(|until| Instant::now() < until));
            if !taken {
                map.insert(key.to_owned(), (value.to_owned(), Some(Instant::now() + ttl)));
            }
            !taken
        }

        fn set(&self, key: &str, value: u32) {
            self.0.lock().unwrap().insert(key.to_owned(), (value.to_string(), None));
        }

        fn get(&self, key: &str) -> u32 {
            self.0.lock().unwrap().get(key).and_then(|(value, _)| value.parse().ok()).unwrap_or(0)
        }

        fn del(&self, key: &str) {
            self.0.lock().unwrap().remove(key);
        }
    }

    /// One click: true when a bottle was "sold".
    fn buy(store: &Store, worker: &str) -> bool {
        while !store.set_nx_px("lock:wine", worker, LOCK_TTL) {
            std::thread::sleep(Duration::from_micros(200));
        }
        let stock = store.get("stock");
        let sold = stock > 0;
        if sold {
            // The lock is over before this is, and nobody notices.
            std::thread::sleep(DEPENDENCY);
            store.set("stock", stock - 1);
        }
        // Whoever has the lock now loses it.
        store.del("lock:wine");
        sold
    }

    /// What one buyer came to.
    pub(super) struct Bought {
        pub(super) bottles: usize,
        /// Nothing was heard in time, so it clicked once more.
        pub(super) timed_out: bool,
    }

    /// One buyer clicks, clicks again within 50 ms, and once more when nothing was heard in time.
    fn buy_one(store: &Arc<Store>, number: usize) -> Bought {
        let (heard, answers) = mpsc::channel();
        let click = || {
            let (store, heard) = (Arc::clone(store), heard.clone());
            std::thread::spawn(move || {
                let sold = buy(&store, &format!("worker-{number}"));
                let _ = heard.send(());
                usize::from(sold)
            })
        };
        let mut clicks = vec![click()];
        std::thread::sleep(DOUBLE_CLICK);
        clicks.push(click());
        let timed_out = answers.recv_timeout(TIME_OUT).is_err();
        if timed_out {
            clicks.push(click());
        }
        Bought { bottles: clicks.into_iter().map(|click| click.join().unwrap()).sum(), timed_out }
    }

    /// Everybody wants one bottle.
    pub(super) fn sell_out() -> Vec<Bought> {
        let store = Arc::new(Store::default());
        store.set("stock", BOTTLES);
        let buyer = |number: usize| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || buy_one(&store, number))
        };
        let buyers: Vec<_> = (0..BUYERS).map(buyer).collect();
        buyers.into_iter().map(|buyer| buyer.join().unwrap()).collect()
    }
}

#[test]
fn the_naive_lock_sells_more_bottles_than_there_are_and_several_to_those_who_wanted_one() {
    let bought = naive::sell_out();
    let sold: usize = bought.iter().map(|bought| bought.bottles).sum();
    let twice = bought.iter().filter(|bought| bought.bottles > 1).count();
    let timed_out = bought.iter().filter(|bought| bought.timed_out).count();
    println!(
        "naive: {sold} of {BOTTLES} bottles sold, {twice} of {BUYERS} buyers paid for more than one, \
         {timed_out} asked again after a time-out"
    );
    assert!(sold > BOTTLES as usize, "the incident did not happen: {sold} sold");
    assert!(twice > 0, "nobody paid twice for one bottle");
    assert!(timed_out > 0, "nobody asked again after a time-out");
}

const BUYERS: usize = 160;
const HOLD_TTL_MS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn ours_sells_exactly_the_bottles_there_are() {
    let seed = Random::seed_of_this_run("oversell_incident");
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let mut desk = stage.desk(0);
    let policy = PolicySpec {
        units_per_holder_max: Some(1),
        accept_late_payment: Some(false),
        ..PolicySpec::default()
    };
    let pools = vec![PoolSpec { id: "wine".to_owned(), capacity: BOTTLES }];
    let event = CreateEvent { id: "sale".to_owned(), pools, policy: Some(policy), ..CreateEvent::default() };
    desk.create_event(&event).await;

    let mut buyers = JoinSet::new();
    for number in 1..=BUYERS {
        let clicks = [(); 2].map(|()| RecordingClient::new(stage.address(), number, &stage.history));
        let random = Random::new(seed.wrapping_add(number as u64));
        buyers.spawn(Buyer { number, random, clicks, attempt: 0, too_slow: 0, given_up: 0 }.buy_one());
    }
    let bought = buyers.join_all().await;
    let happy = bought.iter().filter(|bought| bought.booking.is_some()).count();
    let too_slow: usize = bought.iter().map(|bought| bought.too_slow).sum();
    let given_up: usize = bought.iter().map(|bought| bought.given_up).sum();
    println!(
        "ours: {happy} of {BUYERS} buyers have a bottle, {too_slow} holds ended under a slow dependency, \
         {given_up} clicks were given up"
    );
    assert_eq!(happy, BOTTLES as usize);
    assert!(given_up > 0, "nobody was impatient");
    assert!(too_slow >= 10, "the dependency was hardly ever slower than the hold: {too_slow}");

    let wine = &desk.show_event("sale").await.pools[0];
    assert_eq!((wine.sold, wine.free, wine.held), (BOTTLES, 0, 0));
    let checked = stage.judge().await;
    checked.assert_clean();
    checked.assert_meaningful(2 * BOTTLES as usize);
}

struct Buyer {
    number: usize,
    random: Random,
    clicks: [RecordingClient; 2],
    attempt: usize,
    too_slow: usize,
    given_up: usize,
}

struct Bought {
    booking: Option<String>,
    too_slow: usize,
    given_up: usize,
}

impl Buyer {
    /// Tries until it has its bottle, or all bottles are sold.
    async fn buy_one(mut self) -> Bought {
        for _ in 0..200 {
            self.attempt += 1;
            let answer = self.click_twice(self.hold_request()).await;
            let Some(hold) = Granted::of(&answer) else {
                assert_eq!((answer.status, answer.code().as_deref()), (409, Some("sold-out")), "{answer:?}");
                let problem: leasehold_api::Problem = answer.view().unwrap();
                if problem.returning.unwrap_or(0) == 0 {
                    return self.ends_with(None);
                }
                tokio::time::sleep(Duration::from_millis(self.random.within(20..100))).await;
                continue;
            };
            // A third of the time the dependency takes longer than the hold lives.
            let slow = self.random.percent(33) && self.attempt <= 3;
            let wait_ms = if slow { HOLD_TTL_MS + 300 } else { self.random.within(1..100) };
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            let answer = self.click_twice(confirm_request(&hold)).await;
            if answer.status == 201 {
                let booking = answer.json()["booking_id"].as_str().map(str::to_owned);
                return self.ends_with(booking);
            }
            assert_eq!((answer.status, answer.code().as_deref()), (410, Some("hold-expired")), "{answer:?}");
            self.too_slow += 1;
        }
        panic!("buyer {} gave up", self.number);
    }

    fn ends_with(self, booking: Option<String>) -> Bought {
        Bought { booking, too_slow: self.too_slow, given_up: self.given_up }
    }

    fn hold_request(&self) -> Request {
        let items = vec![ItemSpec::pool("wine", 1)];
        let holder = Some(format!("buyer-{}", self.number));
        let body = CreateHold { items, holder, ttl_ms: Some(HOLD_TTL_MS) };
        let key = format!("buyer-{}-attempt-{}", self.number, self.attempt);
        Request::post("/v1/events/sale/holds", &body).idempotency_key(key)
    }

    /// The same request twice within 50 ms, and again after a time-out; the answer that is not "in flight".
    async fn click_twice(&mut self, request: Request) -> Answer {
        let between = Duration::from_millis(self.random.within(0..50));
        let impatient = self.random.percent(10);
        let [first, second] = &mut self.clicks;
        if impatient {
            // The first click is given up at once; whether it took effect nobody knows.
            let click = tokio::time::timeout(Duration::from_micros(300), first.send(request.clone())).await;
            self.given_up += usize::from(click.is_err());
            *first = RecordingClient::new(second.address(), self.number, second.history());
        }
        let later = async {
            tokio::time::sleep(between).await;
            repeat(second, &request).await
        };
        let (first, second) = tokio::join!(repeat(first, &request), later);
        // A refusal is not remembered, so the second click may be luckier than the first.
        if first.is_success() && second.is_success() {
            assert_eq!(first.body, second.body, "a double click had two effects");
        }
        if first.is_success() { first } else { second }
    }
}

fn confirm_request(hold: &Granted) -> Request {
    let request = Request::post(format!("/v1/holds/{}/confirm", hold.id), &ConfirmHold::default());
    request.secret(&hold.secret).idempotency_key(format!("confirm-{}", hold.id))
}

async fn repeat(client: &mut RecordingClient, request: &Request) -> Answer {
    for _ in 0..1_000 {
        if let Outcome::Answer(answer) = client.send(request.clone()).await
            && answer.code().as_deref() != Some("idempotency-in-flight")
        {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("no answer to {} {}", request.method, request.path);
}
