//! Results and errors of calls.

use crate::{master::Master, mounted};
use mooncake_client::{Error, ErrorCode, HeartbeatMode};

#[tokio::test(start_paused = true)]
async fn refusals_are_typed() {
    let master = Master::new(0, true);
    let (_network, client) = mounted(HeartbeatMode::Legacy, &master).await;
    let error = client.put_start("there", 1, None).await.unwrap_err();
    assert!(matches!(error, Error::Refused(ErrorCode::ObjectAlreadyExists)), "{error}");
    let error = client.put_start("strange", 1, None).await.unwrap_err();
    assert!(matches!(error, Error::UnknownCode(-12345)), "{error}");
    assert_eq!(client.put_start("new", 1, None).await.unwrap().len(), 1);
    let found = client.batch_exist_key(&["there", "no", "bad"]).await.unwrap();
    assert!(
        matches!(found[..], [Ok(true), Ok(false), Err(Error::Refused(ErrorCode::InvalidKey))]),
        "{found:?}"
    );
    let error = client.batch_exist_key(&["there", "lost"]).await.unwrap_err();
    assert_eq!(error.to_string(), "answer: 1 results for 2 keys");
    let health = client.health_check().await.unwrap();
    assert_eq!((health.ok, health.shards_blocked), (false, 7));
    let error = client.get_replica_list("key").await.unwrap_err();
    assert_eq!(error.to_string(), "answer: value: is missing");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_in_time_and_its_connection_is_not_used_again() {
    let master = Master::new(0, true);
    let (network, client) = mounted(HeartbeatMode::Legacy, &master).await;
    let connections = network.attempts.lock().len();
    let error = client.exist_key("slow").await.unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)), "{error}");
    assert_eq!(error.code(), ErrorCode::RpcTimeout);
    assert_eq!(master.notes.lock().exist_calls, 1, "not sent again");
    assert!(client.exist_key("key").await.unwrap());
    assert_eq!(network.attempts.lock().len(), connections + 1);
}

#[tokio::test(start_paused = true)]
async fn mutations_carry_the_epoch_and_reads_do_not() {
    let master = Master::with_epoch(0, true, 12);
    let (_network, client) = mounted(HeartbeatMode::Legacy, &master).await;
    client.put_start("key", 1, None).await.unwrap();
    client.exist_key("key").await.unwrap();
    let notes = master.notes.lock();
    let of = |method| notes.epochs.iter().rfind(|(name, _)| *name == method).unwrap().1.as_deref();
    assert_eq!(of("put_start"), Some("12"));
    assert_eq!(of("mount_segment"), Some("12"));
    assert_eq!(of("exist_key"), None);
    assert_eq!(of("ping"), None);
}
