//! The catalogue: what is stored comes back byte for byte, under the address of its bytes.

use content_digest::Digest;
use e2e::{
    document::{Definition, Plan},
    guests,
    refusal::Refusal,
    stack::Stack,
};
use proto::runner::v1::{GetBlobRequest, GetGrainRequest, ListDefinitionsRequest, ListPlansRequest, StatBlobRequest};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;
use tonic::Code;

#[tokio::test]
async fn two_writers_give_one_definition_one_address() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let uri = Digest::of(b"code").to_uri();
    let capabilities = json!([{"http": {"hosts": ["https://a.example"]}}]);
    for definition in [
        Definition::tool("plain"),
        Definition::client("person"),
        Definition::code("native", &uri),
        Definition::pure("pure", &uri).with("runtime_limits", json!({"fuel": 5000, "max_pages": 64})),
        Definition::io("io", &uri, capabilities)
            .with("runtime_limits", json!({"fuel": 18_446_744_073_709_551_615_u64})),
    ] {
        let grain = definition.grain();
        let authored = client.put_definition(&definition).await.unwrap();
        assert_eq!(authored, Digest::of(&grain).to_hex(), "{}", definition.json());
        assert_eq!(client.put_grain(grain.clone()).await.unwrap(), authored);
        let read = GetGrainRequest { grain_hash: authored };
        let read = client.catalog().get_grain(read).await.unwrap().into_inner();
        assert_eq!((read.grain, read.grain_type.as_str()), (grain, "tool"));
        let fields: Value = serde_json::from_str(&read.fields_json).unwrap();
        assert_eq!(fields["tool_name"], definition.json()["tool_name"]);
    }
}

#[tokio::test]
async fn a_blob_comes_back_byte_for_byte_and_says_whether_it_is_pinned() {
    let module = guests::big(3_000_000);
    let bytes: Vec<u8> = (0..2_500_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let stack = Stack::builder().unwrap().pin(&module).start().await.unwrap();
    let client = stack.client();
    for (blob, pinned) in [(&module, true), (&bytes, false)] {
        let digest = client.put_blob(blob).await.unwrap();
        assert_eq!(digest, Digest::of(blob).to_uri());
        assert_eq!(client.put_blob(blob).await.unwrap(), digest, "storing twice is storing once");
        let request = StatBlobRequest { digest: digest.trim_start_matches("cas://sha256:").to_uppercase() };
        let stat = client.catalog().stat_blob(request).await.unwrap().into_inner();
        assert_eq!((stat.present, stat.size_bytes, stat.pinned), (true, blob.len() as u64, pinned));
        let mut read = client.catalog().get_blob(GetBlobRequest { digest }).await.unwrap().into_inner();
        let mut back = Vec::new();
        while let Some(chunk) = read.next().await {
            back.extend(chunk.unwrap().chunk);
        }
        assert!(back == **blob);
    }
    let nowhere = GetBlobRequest { digest: "ab".repeat(32) };
    let refusal = match client.catalog().get_blob(nowhere).await {
        Err(status) => Refusal::of(&status),
        Ok(mut read) => Refusal::expected(read.get_mut().message().await),
    };
    refusal.is(Code::NotFound, "BLOB_NOT_FOUND");
}

#[tokio::test]
async fn definitions_and_plans_are_listed_page_by_page() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let mut plans = Vec::new();
    for number in 0..5 {
        let hash = client.put_definition(&Definition::tool(&format!("tool-{number}"))).await.unwrap();
        plans.push(client.put_plan(&Plan::new().node(&format!("node-{number}"), &hash)).await.unwrap());
    }
    let (mut names, mut listed) = (Vec::new(), Vec::new());
    let mut page_token = String::new();
    loop {
        let request = ListDefinitionsRequest { namespace: "ops".into(), page_size: 2, page_token };
        let page = client.catalog().list_definitions(request).await.unwrap().into_inner();
        assert!(page.definitions.len() <= 2);
        names.extend(page.definitions.into_iter().map(|definition| definition.tool_name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["tool-0", "tool-1", "tool-2", "tool-3", "tool-4"]);
    loop {
        let request = ListPlansRequest { namespace: "ops".into(), page_size: 2, page_token };
        let page = client.catalog().list_plans(request).await.unwrap().into_inner();
        listed.extend(page.plans.into_iter().map(|plan| plan.plan_hash));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    listed.sort();
    plans.sort();
    assert_eq!(listed, plans);
    let elsewhere = ListPlansRequest { namespace: "elsewhere".into(), ..Default::default() };
    assert!(client.catalog().list_plans(elsewhere).await.unwrap().into_inner().plans.is_empty());
    let forged = ListPlansRequest { namespace: "ops".into(), page_size: 2, page_token: "forged".into() };
    Refusal::expected(client.catalog().list_plans(forged).await).is(Code::InvalidArgument, "BAD_PAGE_TOKEN");
}
