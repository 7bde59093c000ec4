//! RPCs of `mooncake.master.v1` about segments, files, and what this master does not have.

use crate::{
    grpc::{OK, end, exists, put, segment, start, with_memory},
    support::{ENDPOINT, MIB, grpc, grpc_id},
};
use mooncake_proto::v1;
use mooncake_tests::MasterBuilder;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn a_segment_goes_gracefully_and_tells_where_it_stands() {
    let (_master, mut client) = with_memory().await;
    put(&mut client, "a").await;
    let name = v1::QuerySegmentStatusRequest { segment_name: ENDPOINT.into() };
    let status = client.query_segment_status(name).await.expect("status").into_inner();
    assert_eq!((status.code, status.status()), (OK, v1::SegmentStatus::SegmentOk));
    let query = v1::BatchQueryIpRequest { client_ids: grpc_id(1).into_iter().chain(grpc_id(8)).collect() };
    let hosts = client.batch_query_ip(query).await.expect("hosts").into_inner().entries;
    assert_eq!(hosts.len(), 1, "only who has memory");
    assert_eq!((hosts[0].client_id, &*hosts[0].hosts), (grpc_id(1), &["127.0.0.1".to_owned()][..]));
    let unmount = v1::GracefulUnmountSegmentRequest {
        segment_id: grpc_id(1),
        client_id: grpc_id(1),
        grace_period_ms: 1000,
    };
    assert_eq!(client.graceful_unmount_segment(unmount).await.expect("unmount").into_inner().code, OK);
    let by_id = v1::QuerySegmentStatusByIdRequest { segment_id: grpc_id(1) };
    let status = client.query_segment_status_by_id(by_id).await.expect("status").into_inner();
    assert_eq!(status.status(), v1::SegmentStatus::GracefullyUnmounting);
    assert!(exists(&mut client, "a").await, "until the grace period is over");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = client.query_segment_status_by_id(by_id).await.expect("status").into_inner();
        if status.code == v1::ErrorCode::SegmentNotFound as i32 {
            break;
        }
        assert!(Instant::now() < deadline, "still {status:?}");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!exists(&mut client, "a").await);
}

#[tokio::test]
async fn an_object_has_a_file_beside_its_memory() {
    let master = MasterBuilder::default().arg("--root_fs_dir=/pool").start();
    let mut client = grpc(&master).await;
    let fsdir = client.get_fsdir(v1::GetFsdirRequest {}).await.expect("fsdir").into_inner().fsdir;
    assert_eq!(fsdir, "/pool/mooncake_cluster");
    let mount = v1::MountSegmentRequest { segment: segment(1, 16 * MIB), client_id: grpc_id(1) };
    assert_eq!(client.mount_segment(mount).await.expect("mount").into_inner().code, OK);
    let started = client.put_start(start("a", 100)).await.expect("start").into_inner();
    let Some(v1::replica::Descriptor::Disk(file)) = &started.replicas[1].descriptor else {
        panic!("no file: {started:?}")
    };
    assert!(file.file_path.starts_with("/pool/mooncake_cluster/") && file.file_path.ends_with("/a"));
    assert_eq!(file.object_size, 100);
    for kind in [v1::ReplicaType::All, v1::ReplicaType::Disk] {
        let request = v1::PutEndRequest { replica_type: Some(kind as i32), ..end(1, "a", None) };
        assert_eq!(client.put_end(request).await.expect("end").into_inner().code, OK);
    }
    let get = v1::GetReplicaListRequest { key: "a".into(), tenant_id: String::new() };
    let list = client.get_replica_list(get).await.expect("get").into_inner().value.expect("a list");
    assert_eq!(list.replicas.len(), 2);
    let evict = v1::BatchEvictDiskReplicaRequest {
        client_id: grpc_id(1),
        keys: vec!["a".into(), "missing".into()],
        ..Default::default()
    };
    let evicted = client.batch_evict_disk_replica(evict).await.expect("evict").into_inner().results;
    let codes: Vec<i32> = evicted.iter().map(|result| result.code).collect();
    assert_eq!(codes, [OK, v1::ErrorCode::ObjectNotFound as i32]);
    let clear = v1::BatchReplicaClearRequest {
        keys: vec!["a".into()],
        client_id: grpc_id(1),
        segment_name: String::new(),
    };
    let cleared = client.batch_replica_clear(clear).await.expect("clear").into_inner().cleared_keys;
    assert!(cleared.is_empty(), "it was just read and has a lease");
}

#[tokio::test]
async fn what_this_master_has_not_is_refused_with_the_code_of_the_cpp_master() {
    let (_master, mut client) = with_memory().await;
    let (unable, mode) =
        (v1::ErrorCode::UnableOffload as i32, v1::ErrorCode::UnavailableInCurrentMode as i32);
    let missing = v1::ErrorCode::SegmentNotFound as i32;
    macro_rules! refused {
        ($call:ident($request:ident) == $code:expr) => {
            let answer = client.$call(v1::$request::default()).await.expect("an answer").into_inner();
            assert_eq!(answer.code, $code, stringify!($call));
        };
    }
    refused!(mount_local_disk_segment(MountLocalDiskSegmentRequest) == unable);
    refused!(unmount_local_disk_segment(UnmountLocalDiskSegmentRequest) == unable);
    refused!(poll_remove_all(PollRemoveAllRequest) == missing);
    refused!(mount_no_f_segment(MountNoFSegmentRequest) == mode);
    refused!(re_mount_no_f_segment(ReMountNoFSegmentRequest) == mode);
    refused!(unmount_no_f_segment(UnmountNoFSegmentRequest) == mode);
    refused!(get_all_no_f_segments(GetAllNoFSegmentsRequest) == OK);
    refused!(get_no_f_segments_by_name(GetNoFSegmentsByNameRequest) == missing);
}
