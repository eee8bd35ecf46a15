//! `cargo xtask pictures`: the README's pictures of the web pages, taken by the tests in a real browser.

use std::path::Path;

use anyhow::{Context, Result};

use crate::packages;
use crate::step::{cargo, run};

/// Takes them all, and notes which pages they show.
pub(crate) fn take() -> Result<()> {
    packages::ensure()?;
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is a folder of the repository")?;
    let folder = folder.join("docs/pictures");
    // Each writes down what it shows; whether that is so for all of them is looked at in the end.
    for tests in ["picture_taken", "pictures_that_are_kept"] {
        // A build with optimisations: the pictures show figures too.
        let take = ["test", "--release", "--package", "leasehold", "--test", "web", "--locked", tests];
        // One after the other, so that no picture's figures suffer from another's.
        run(cargo(take).args(["--", "--test-threads", "1"]).env("LEASEHOLD_PICTURES", &folder))?;
    }
    Ok(())
}
