//! What every test here begins with: a demo server without its crowd, events to sell, and people with browsers.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use leasehold_api::{
    CreateEvent, CreateHold, HoldView, ItemSpec, LayoutSpec, PolicySpec, PoolSpec, SectionSpec,
};
use leasehold_client::{Client, Request, Response};
use leasehold_testkit::{Browser, Launch, Page, Screen, ServerProcess};
use serde_json::Value;

/// The server and its data file.
pub(crate) struct House {
    pub(crate) server: ServerProcess,
    launch: Launch,
    folder: tempfile::TempDir,
}

/// A person in front of a browser of their own.
pub(crate) struct Person {
    page: Page,
    _browser: Browser,
}

impl House {
    /// The demo, which has a stand-in for a payment service.
    pub(crate) fn open() -> Self {
        Self::start(|binary, data| Launch::demo(binary, data, 0))
    }

    /// The same with simulated buyers.
    pub(crate) fn with_crowd(crowd: u32) -> Self {
        Self::start(|binary, data| Launch::demo(binary, data, crowd))
    }

    /// The server as it is in production.
    pub(crate) fn serving(args: &[&str]) -> Self {
        Self::start(|binary, data| Launch::new(binary, data).args(args))
    }

    fn start(launch: impl FnOnce(&Path, &Path) -> Launch) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory for the data file");
        let launch = launch(Path::new(env!("CARGO_BIN_EXE_leasehold")), &folder.path().join("house.db"));
        Self { server: launch.start(), launch, folder }
    }

    /// Starts the server again, where it was.
    pub(crate) fn come_back(&mut self) {
        let address = self.server.address().to_owned();
        self.server = self.launch.clone().at(&address).start();
    }

    /// The same, and everything that it knew is lost.
    pub(crate) fn come_back_empty(&mut self) {
        for file in std::fs::read_dir(self.folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        self.come_back();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.server.address())
    }

    /// An event with two sections `A` and `B` of four rows of ten, a floor of `standing`, and these rules.
    pub(crate) async fn sell(&self, id: &str, standing: u32, policy: PolicySpec) {
        let section = |name: &str| SectionSpec { name: name.to_owned(), rows: 4, seats_per_row: 10 };
        let event = CreateEvent {
            id: id.to_owned(),
            name: Some(format!("The {id} evening")),
            layout: Some(LayoutSpec { sections: vec![section("A"), section("B")] }),
            pools: (standing > 0)
                .then(|| PoolSpec { id: "floor".to_owned(), capacity: standing })
                .into_iter()
                .collect(),
            policy: Some(policy),
            ..CreateEvent::default()
        };
        self.create(&event).await;
    }

    pub(crate) async fn create(&self, event: &CreateEvent) {
        let created = self.client().send(Request::post("/v1/events", event)).await.unwrap();
        assert_eq!(created.status, 201, "{created:?}");
    }

    /// Somebody else takes something, without a browser.
    pub(crate) async fn hold(&self, event: &str, item: ItemSpec, holder: &str) -> HoldView {
        let answer = self.try_hold(event, item, holder).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json().unwrap()
    }

    pub(crate) async fn try_hold(&self, event: &str, item: ItemSpec, holder: &str) -> Response {
        let body = CreateHold { items: vec![item], holder: Some(holder.to_owned()), ttl_ms: None };
        self.client().send(Request::post(format!("/v1/events/{event}/holds"), &body)).await.unwrap()
    }

    /// Seats of an event by how they stand: free, held, sold.
    pub(crate) async fn seats(&self, event: &str) -> (u64, u64, u64) {
        let answer = self.client().send(Request::get(format!("/v1/events/{event}"))).await.unwrap();
        let view: Value = answer.json().unwrap();
        let count = |name: &str| view["seats"][name].as_u64().unwrap();
        (count("free"), count("held"), count("sold"))
    }

    /// Somebody opens an event's page and sees it.
    pub(crate) async fn visitor(&self, event: &str, screen: Screen) -> Person {
        let mut person = Person::sit_down(screen).await;
        person.open(&self.url(&format!("/events/{event}"))).await;
        person.until_there("#view[data-showing]").await;
        person.until("document.getElementById('map').connection === 'live'").await;
        person
    }
}

impl Person {
    pub(crate) async fn sit_down(screen: Screen) -> Self {
        let browser = Browser::start().await;
        let page = browser.page(screen).await;
        Self { page, _browser: browser }
    }

    /// Looks at a seat from near and clicks it, with the mouse.
    pub(crate) async fn click_seat(&mut self, seat: &str) {
        self.run(&format!("document.getElementById('map').showSeats([{seat:?}]);")).await;
        let place = self.place_of(seat).await;
        self.click_at(place).await;
    }

    /// Where a seat is in the window, when the map's camera stands still.
    pub(crate) async fn place_of(&mut self, seat: &str) -> (i64, i64) {
        let script = format!(
            "const map = document.getElementById('map');
             const frame = () => new Promise((next) => requestAnimationFrame(next));
             let before = {{ x: -1, y: -1 }};
             let point = map.pointOf({seat:?});
             while (point.x !== before.x || point.y !== before.y) {{
               before = point;
               await frame();
               await frame();
               point = map.pointOf({seat:?});
             }}
             const box = map.getBoundingClientRect();
             return [Math.round(box.left + point.x), Math.round(box.top + point.y)];"
        );
        let place = self.run(&script).await;
        (place[0].as_i64().unwrap(), place[1].as_i64().unwrap())
    }

    /// Chooses seats and holds them.
    pub(crate) async fn take(&mut self, seats: &[&str]) {
        for seat in seats {
            self.click_seat(seat).await;
        }
        self.click("#hold-chosen").await;
        self.until_there("#countdown").await;
    }

    /// Pays, and lets the bank do this.
    pub(crate) async fn pay(&mut self, how: &str) {
        self.click("#pay").await;
        self.click(&format!("input[name=bank][value={how}]")).await;
        self.click("#pay-now").await;
    }

    /// How a seat stands on the map.
    pub(crate) async fn sees(&mut self, seat: &str) -> String {
        let seen = self.run(&format!("return document.getElementById('map').statusOf({seat:?});")).await;
        seen.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn until_sees(&mut self, seat: &str, status: &str) {
        self.until(&format!("document.getElementById('map').statusOf({seat:?}) === {status:?}")).await;
    }

    /// Seconds on the countdown.
    pub(crate) async fn countdown(&mut self) -> u64 {
        let shown = self.text_of("#countdown").await;
        let parts: Vec<u64> = shown.split(':').map(|part| part.parse().unwrap_or(0)).collect();
        parts.iter().fold(0, |seconds, part| seconds * 60 + part)
    }
}

impl Deref for Person {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.page
    }
}

impl DerefMut for Person {
    fn deref_mut(&mut self) -> &mut Page {
        &mut self.page
    }
}

/// Rules with a hold's time in seconds, and what a test changes of them.
pub(crate) fn rules(hold_seconds: u64) -> PolicySpec {
    PolicySpec { hold_ttl_ms: Some(hold_seconds * 1_000), ..PolicySpec::default() }
}
