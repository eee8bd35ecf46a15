//! Answers kept under idempotency keys, as bytes.

use leasehold_core::{EventNo, Reference, Timestamp};

use crate::bytes::{Damaged, Get, Put};
use crate::{Outcome, image};

/// An answer as it was given.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) event: EventNo,
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
}

/// Writes an answer.
pub(crate) fn put_answer(out: &mut Vec<u8>, event: EventNo, outcome: &Outcome) {
    out.put_u8(image::FORMAT);
    out.put_u64(event.0.into());
    match outcome {
        Outcome::Event(summary) => {
            out.put_u8(0);
            image::put_summary(out, summary);
        }
        Outcome::Hold(hold) => {
            out.put_u8(1);
            image::put_hold(out, hold);
        }
        Outcome::Booking(booking) => {
            out.put_u8(2);
            image::put_booking(out, booking);
        }
        Outcome::Block(block) => {
            out.put_u8(3);
            image::put_block(out, block);
        }
        Outcome::BlockGone => out.put_u8(4),
        Outcome::RefundDue(reference) => {
            out.put_u8(5);
            out.put_text(reference.as_str());
        }
    }
}

/// Reads an answer that was decided at this time.
pub(crate) fn get_answer(bytes: &[u8], at: Timestamp) -> Result<Answer, Damaged> {
    let mut get = Get(bytes);
    if get.u8()? != image::FORMAT {
        return Err(Damaged);
    }
    let event = EventNo(get.u32()?);
    let outcome = match get.u8()? {
        0 => Outcome::Event(image::get_summary(&mut get)?),
        1 => Outcome::Hold(image::get_hold(&mut get)?),
        2 => Outcome::Booking(image::get_booking(&mut get)?),
        3 => Outcome::Block(image::get_block(&mut get)?),
        4 => Outcome::BlockGone,
        5 => Outcome::RefundDue(Reference::parse(get.text()?).map_err(|_| Damaged)?),
        _ => return Err(Damaged),
    };
    Ok(Answer { event, at, outcome })
}
