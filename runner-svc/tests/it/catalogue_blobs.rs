//! Blobs over gRPC: in pieces, verified, refused by name.

use std::time::Duration;

use content_digest::Digest;
use proto::{
    fault::Reason,
    runner::v1::{GetBlobRequest, PutBlobRequest, StatBlobRequest, put_blob_request::Message},
};
use runner_svc::access::LocalAccess;
use tonic::Code;

use crate::catalogue_host::{refused, served, upload};

#[tokio::test]
async fn a_blob_goes_in_and_comes_out_in_pieces() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let code: Vec<u8> = (0..700_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let digest = Digest::of(&code);
    let pieces: Vec<&[u8]> = code.chunks(300_000).collect();
    for expected in [None, Some(digest.to_uri()), Some(digest.to_hex().to_uppercase())] {
        let stored = client.put_blob(upload(expected.as_deref(), &pieces)).await.unwrap().into_inner();
        assert_eq!((stored.digest, stored.size_bytes), (digest.to_uri(), 700_000));
    }
    let mut answers = client.get_blob(GetBlobRequest { digest: digest.to_hex() }).await.unwrap().into_inner();
    let mut read = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(answer.chunk.len() <= 256 << 10);
        read.extend(answer.chunk);
    }
    assert!(read == code);
    let stat = client.stat_blob(StatBlobRequest { digest: digest.to_hex() }).await.unwrap().into_inner();
    assert_eq!((stat.digest, stat.present, stat.size_bytes, stat.pinned), (digest.to_uri(), true, 700_000, false));
    let stat = client.stat_blob(StatBlobRequest { digest: Digest::of("pinned").to_hex() }).await.unwrap().into_inner();
    assert_eq!((stat.present, stat.size_bytes, stat.pinned), (false, 0, true));
    let empty = client.put_blob(upload(None, &[])).await.unwrap().into_inner();
    assert_eq!((empty.digest, empty.size_bytes), (Digest::of("").to_uri(), 0));
}

#[tokio::test]
async fn blobs_are_refused_by_name() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let status = client.put_blob(upload(Some(&Digest::ZERO.to_hex()), &[b"code"])).await.unwrap_err();
    let text = refused(&status, Reason::DigestMismatch, Code::InvalidArgument);
    assert!(text.contains(&Digest::of("code").to_hex()) && text.contains(&Digest::ZERO.to_hex()), "{text}");
    let status = client.put_blob(upload(Some("executor://x"), &[b"code"])).await.unwrap_err();
    refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
    let status = client.put_blob(upload(None, &[&vec![0; (1 << 20) + 1]])).await.unwrap_err();
    assert!(refused(&status, Reason::InvalidArgument, Code::InvalidArgument).contains("1 MiB"));
    let piece = vec![7; 1 << 20];
    let pieces = vec![piece.as_slice(); 65];
    let status = client.put_blob(upload(None, &pieces)).await.unwrap_err();
    assert!(refused(&status, Reason::InvalidArgument, Code::InvalidArgument).contains("67108864"));
    let late = [
        PutBlobRequest { message: Some(Message::Chunk(vec![1])) },
        PutBlobRequest { message: Some(Message::ExpectedDigest(Digest::ZERO.to_hex())) },
    ];
    let status = client.put_blob(tokio_stream::iter(late)).await.unwrap_err();
    refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
    let status = client.get_blob(GetBlobRequest { digest: Digest::ZERO.to_hex() }).await.unwrap_err();
    refused(&status, Reason::BlobNotFound, Code::NotFound);
    let tmp = host.directory.path().join("blobs/tmp");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while std::fs::read_dir(&tmp).unwrap().count() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "given-up uploads stay on the disk");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_damaged_blob_is_never_sent() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let digest = Digest::of("code");
    client.put_blob(upload(None, &[b"code"])).await.unwrap();
    let hex = digest.to_hex();
    std::fs::write(host.directory.path().join("blobs").join(&hex[..2]).join(&hex[2..]), "c0de").unwrap();
    let status = client.get_blob(GetBlobRequest { digest: hex.clone() }).await.unwrap_err();
    assert!(refused(&status, Reason::Damaged, Code::DataLoss).contains(&hex));
    client.put_blob(upload(None, &[b"code"])).await.unwrap();
    client.get_blob(GetBlobRequest { digest: hex }).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_refuses_is_told_from_a_wrong_request_and_mends_by_itself() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let (tmp, aside) = (host.directory.path().join("blobs/tmp"), host.directory.path().join("aside"));
    std::fs::rename(&tmp, &aside).unwrap();
    let status = client.put_blob(upload(None, &[b"code"])).await.unwrap_err();
    let text = refused(&status, Reason::StorageUnavailable, Code::Unavailable);
    assert!(!text.contains(&*host.directory.path().to_string_lossy()), "{text}");
    assert!(proto::fault::retry_after_of(&status).is_some());
    std::fs::rename(&aside, &tmp).unwrap();
    client.put_blob(upload(None, &[b"code"])).await.unwrap();
}
