//! A blocking gRPC client.

use mooncake_proto::v1::master_service_client::MasterServiceClient;
use std::net::SocketAddr;
use tonic::{Response, Status, transport::Channel};

pub(crate) struct Grpc {
    runtime: tokio::runtime::Runtime,
    client: MasterServiceClient<Channel>,
}

impl Grpc {
    pub(crate) fn connect(address: SocketAddr) -> Grpc {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client =
            runtime.block_on(MasterServiceClient::connect(format!("http://{address}"))).expect("accepts");
        Grpc { runtime, client }
    }

    /// One call and its answer's message.
    pub(crate) fn call<T>(
        &self,
        call: impl AsyncFnOnce(&mut MasterServiceClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, Status> {
        let mut client = self.client.clone();
        self.runtime.block_on(call(&mut client)).map(Response::into_inner)
    }
}
