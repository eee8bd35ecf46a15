//! The end of a sale: when all turmoil is over, everything can be sold once more, and no more than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_api::{BlockList, EventView, HoldList, RevokeHold};
use leasehold_client::Request;

use crate::buyer::Buyer;
use crate::doors::Doors;
use crate::history::Outcome;
use crate::workload::Workload;

const LOOK_PAUSE: Duration = Duration::from_millis(50);

impl Workload {
    /// Finds out what became of every request under a key, ends all sales that the buyers know of and all holds
    /// and blocks, and lets all of them at once buy everything. Returns the event as it is then: nothing is left. Panics when that
    /// takes longer than `time_max`.
    pub async fn sell_out(&mut self, addresses: &[&str], time_max: Duration) -> EventView {
        let mut operator = self.doors(addresses, 0, 0);
        let (mut stage, mut seen) = ("nothing", None);
        let selling = async {
            stage = "everything given back";
            let settling = self.send_out(addresses, Buyer::settle);
            self.take_back(settling).await;
            self.end_holds(&mut operator).await;
            self.end_blocks(&mut operator).await;
            stage = "everything sold";
            let stop = Arc::new(AtomicBool::new(false));
            let buying =
                self.send_out(addresses, |buyer, doors| buyer.buy_what_is_left(doors, Arc::clone(&stop)));
            loop {
                let view: Option<EventView> = self.look(&mut operator, "").await;
                let is_sold = view.as_ref().is_some_and(|view| self.is_sold_out(view));
                seen = view.or(seen.take());
                if is_sold {
                    break;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            stop.store(true, Ordering::Relaxed);
            self.take_back(buying).await;
        };
        let is_done = tokio::time::timeout(time_max, selling).await.is_ok();
        match seen {
            Some(view) if is_done => view,
            seen => panic!("not {stage} within {time_max:?}; last seen: {seen:?}"),
        }
    }

    /// Takes every hold away, also those that are being paid for.
    async fn end_holds(&self, operator: &mut Doors) {
        loop {
            let live: Option<HoldList> = self.look(operator, "/holds?limit=1000").await;
            let Some(live) = live else { continue };
            if live.holds.is_empty() {
                return;
            }
            for hold in live.holds {
                let body = RevokeHold { reason: Some("closing time".to_owned()) };
                operator.send(Request::post(format!("/v1/holds/{}/revoke", hold.hold_id), &body)).await;
            }
        }
    }

    /// Puts on sale again what is kept back. Its buyer may not know of it: told by one server that it was refused, while
    /// the same request was under way in another one that stood still.
    async fn end_blocks(&self, operator: &mut Doors) {
        loop {
            let kept: Option<BlockList> = self.look(operator, "/blocks?limit=1000").await;
            let Some(kept) = kept else { continue };
            if kept.blocks.is_empty() {
                return;
            }
            for block in kept.blocks {
                let path = format!("/v1/events/{}/blocks/{}", self.shop.event, block.block_id);
                operator.send(Request::delete(path)).await;
            }
        }
    }

    /// Something of the event as a server shows it, if it does.
    async fn look<T: serde::de::DeserializeOwned>(&self, operator: &mut Doors, what: &str) -> Option<T> {
        let request = Request::get(format!("/v1/events/{}{what}", self.shop.event));
        match operator.send(request).await {
            Outcome::Answer(answer) if answer.is_success() => answer.view(),
            Outcome::Answer(_) | Outcome::NoAnswer | Outcome::NotSent => {
                tokio::time::sleep(LOOK_PAUSE).await;
                None
            }
        }
    }

    /// True when no seat is left, and nothing of the pool that the buyers know.
    fn is_sold_out(&self, view: &EventView) -> bool {
        let pools = view.pools.iter().filter(|pool| pool.id == self.shop.pool);
        view.seats.free + view.seats.held + pools.map(|pool| pool.free + pool.held).sum::<u32>() == 0
    }
}
