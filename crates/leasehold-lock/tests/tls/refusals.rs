//! Servers that cannot show who they are, and servers that expect something else.

use leasehold_lock::LockError;
use leasehold_testkit::servers::{Authority, Certificate, RedisCluster, RedisSentinel, RedisServer};

use crate::support::{refused, told, trusting};

const PASSWORD: &str = "not-for-strangers";

/// The URLs of one server and of three independent ones, with a password that no stranger shall see.
fn urls(certificate: &Certificate, trust: &str) -> (Vec<RedisServer>, [String; 2]) {
    let servers = RedisServer::options().tls(certificate).password(PASSWORD).start_independent(3);
    let addresses: Vec<String> = servers.iter().map(RedisServer::tls_address).collect();
    let one = format!("rediss://:{PASSWORD}@{}?{trust}", addresses[0]);
    let three = format!("redlocks://:{PASSWORD}@{}?{trust}", addresses.join(","));
    (servers, [one, three])
}

/// It is the setup that is wrong, so asking again does not help, and the reason is told without the password.
#[track_caller]
fn assert_untrusted(error: &LockError, reason: &str) {
    let told = told(error);
    assert!(matches!(error, LockError::Refused { .. }), "{told}");
    assert!(told.contains(reason) && !told.contains(PASSWORD), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    // Without the file the system's authorities count, and they do not know the server's either.
    for trust in [trusting(&ours.ca_file()), String::new()] {
        let (_servers, urls) = urls(&theirs.certificate(), &trust);
        for url in urls {
            assert_untrusted(&refused(&url, None).await, "UnknownIssuer");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_server_is_refused() {
    let authority = Authority::new();
    let elsewhere = authority.certificate_for("elsewhere.example");
    let (_servers, urls) = urls(&elsewhere, &trusting(&authority.ca_file()));
    for url in urls {
        assert_untrusted(&refused(&url, None).await, "not valid for name");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_and_a_sentinel_of_an_unknown_authority_are_refused() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    let trust = trusting(&ours.ca_file());
    let cluster = RedisCluster::options().tls(&theirs.certificate()).start();
    let url = format!("rediss-cluster://:{PASSWORD}@{}?{trust}", cluster.tls_addresses().join(","));
    assert_untrusted(&refused(&url, None).await, "UnknownIssuer");
    let sentinel = RedisSentinel::options().tls(&theirs.certificate()).start();
    let (addresses, name) = (sentinel.sentinel_tls_addresses().join(","), sentinel.master_name());
    let url = format!("rediss-sentinel://:{PASSWORD}@{addresses}/{name}?{trust}");
    assert_untrusted(&refused(&url, None).await, "UnknownIssuer");
}

/// Either side waits for the other's first word, or hangs up. Nobody waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speaking_plainly_to_tls_and_tls_to_a_plain_port_ends_as_unknown() {
    let authority = Authority::new();
    let server = RedisServer::options().tls(&authority.certificate()).start();
    let (plain, encrypted) = (server.address(), server.tls_address());
    let trust = trusting(&authority.ca_file());
    for url in [
        format!("redis://{encrypted}"),
        format!("redlock://{encrypted}"),
        format!("redis-cluster://{encrypted}"),
        format!("redis-sentinel://{encrypted}/master"),
        format!("rediss://{plain}?{trust}"),
    ] {
        let error = refused(&url, None).await;
        assert!(matches!(error, LockError::Unknown { .. }), "{url}: {}", told(&error));
    }
}
