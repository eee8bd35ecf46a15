//! A program that was built without TLS says so. With TLS there is nothing to see here:
//! `cargo test --package leasehold --no-default-features --test without_tls`.
#![cfg(not(feature = "tls"))]

use std::process::Command;

/// What the command says about a store that it cannot use.
fn refusal(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("doctor").args(args).env_remove("LEASEHOLD_STORE").env_remove("LEASEHOLD_EPOCHS");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(96), "{args:?}: {said}");
    said
}

#[test]
fn a_store_that_needs_tls_names_the_feature_that_is_missing() {
    let stores = [
        "rediss://:hunter2@cache",
        "valkeys://:hunter2@cache",
        "rediss-cluster://:hunter2@a,b",
        "rediss-sentinel://:hunter2@a:26379/master",
        "redlocks://:hunter2@a,b,c",
    ];
    for store in stores {
        let said = refusal(&["--store", store]);
        assert!(said.contains("tls is not built into this program") && !said.contains("hunter2"), "{said}");
    }
    for parameter in ["sslmode=require", "sslmode=verify-full", "sslrootcert=/etc/ca.pem"] {
        let epochs = format!("postgres://ada:hunter2@db/app?{parameter}");
        let said = refusal(&["--store", "redis://127.0.0.1", "--epochs", &epochs]);
        assert!(said.contains("tls is not built into this program") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_ledger_that_needs_tls_names_the_feature_that_is_missing() {
    for parameter in ["sslmode=require", "sslmode=verify-full", "sslrootcert=/etc/ca.pem"] {
        let ledger = format!("postgres://ada:hunter2@db/app?{parameter}");
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(["check", &ledger]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("TLS is not built into this program") && !said.contains("hunter2"), "{said}");
    }
}
