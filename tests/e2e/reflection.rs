//! Reflection, old and new: every service is listed, and every one is described.

use std::collections::BTreeSet;

use e2e::channel::Channel;
use e2e::stack::Stack;
use tokio_stream::StreamExt as _;
use tonic_reflection::pb::{v1, v1alpha};

const SHARED: [&str; 3] =
    ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Asks both versions to list the services, and then for the file of each symbol.
async fn check(channel: Channel, own: &[&str]) {
    use v1::server_reflection_request::MessageRequest as New;
    use v1alpha::server_reflection_request::MessageRequest as Old;
    let symbols: Vec<String> = own.iter().chain(&SHARED).map(|name| (*name).to_owned()).collect();

    let requests: Vec<_> = [New::ListServices(String::new())]
        .into_iter()
        .chain(symbols.iter().cloned().map(New::FileContainingSymbol))
        .map(|request| v1::ServerReflectionRequest { host: String::new(), message_request: Some(request) })
        .collect();
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    assert_eq!(answers.len(), symbols.len() + 1);
    for (place, answer) in answers.into_iter().enumerate() {
        match answer {
            v1::server_reflection_response::MessageResponse::ListServicesResponse(listed) => {
                let listed: BTreeSet<_> = listed.service.into_iter().map(|service| service.name).collect();
                assert_eq!(listed, symbols.iter().cloned().collect(), "what is served is listed, and nothing else");
            }
            v1::server_reflection_response::MessageResponse::FileDescriptorResponse(file) => {
                assert!(!file.file_descriptor_proto.is_empty());
            }
            other => panic!("{:?}: {other:?}", symbols.get(place.wrapping_sub(1))),
        }
    }

    let requests: Vec<_> = [Old::ListServices(String::new())]
        .into_iter()
        .chain(symbols.iter().cloned().map(Old::FileContainingSymbol))
        .map(|request| v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(request) })
        .collect();
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    assert_eq!(answers.len(), symbols.len() + 1);
    let listed = answers.iter().find_map(|answer| match answer {
        v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(listed) => Some(listed),
        _ => None,
    });
    let listed: BTreeSet<_> = listed.unwrap().service.iter().map(|service| service.name.clone()).collect();
    assert_eq!(listed, symbols.iter().cloned().collect());
    for answer in answers {
        let refused = matches!(answer, v1alpha::server_reflection_response::MessageResponse::ErrorResponse(_));
        assert!(!refused, "{answer:?}");
    }
}

#[tokio::test]
async fn every_service_is_listed_and_described_by_both_versions() {
    let builder = Stack::builder().unwrap().sandbox().broker("[policy]\nallow_hosts = []\n", &[]).unwrap();
    let stack = builder.start().await.unwrap();
    let runner = ["areev.runner.v1.CatalogService", "areev.runner.v1.RunnerService"];
    check(stack.runner.channel().unwrap(), &runner).await;
    check(stack.sandbox.as_ref().unwrap().channel().unwrap(), &["areev.sandbox.v1.SandboxService"]).await;
    check(stack.broker.as_ref().unwrap().channel().unwrap(), &["areev.broker.v1.BrokerService"]).await;
}
