//! Definitions, plans and grains over gRPC: what is stored, what is answered, what is refused and how.

use content_digest::Digest;
use prost_types::{Struct, Value as WireValue, value::Kind};
use proto::{
    fault::Reason,
    runner::v1::{
        ExportBundleRequest, GetGrainRequest, ListDefinitionsRequest, ListPlansRequest, ListStepActionsRequest,
        PutDefinitionRequest, PutGrainRequest, PutPlanRequest, StatBlobRequest, ValidatePlanRequest,
        put_definition_request::Document as DefinitionDocument, validate_plan_request::Plan,
    },
};
use runner_svc::access::{LocalAccess, StaticAccess};
use serde_json::{Value, json};
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use crate::{
    catalogue_host::{definition, plan, refused, served, upload},
    vectors::{bytes, list, text},
};

#[tokio::test]
async fn definitions_of_the_vectors_get_their_published_hashes() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let mut checked = 0;
    for vector in list("grains.json", "vectors") {
        let (name, document) = (text(&vector, "name"), text(&vector, "json_text"));
        let says = serde_json::from_str::<Value>(document).unwrap()["kind"] == "definition";
        if !(name.starts_with("tool-def/") && says) {
            continue;
        }
        let request = PutDefinitionRequest {
            namespace: text(&vector, "namespace").to_owned(),
            document: Some(DefinitionDocument::DefinitionJson(document.to_owned())),
        };
        let stored = client.put_definition(request).await.unwrap_or_else(|status| panic!("{name}: {status:?}"));
        let hash = stored.into_inner().definition_hash;
        assert_eq!(hash, text(&vector, "hash_hex"), "{name}");
        let grain = client.get_grain(GetGrainRequest { grain_hash: hash }).await.unwrap().into_inner();
        assert_eq!((grain.grain, grain.grain_type.as_str()), (bytes(&vector), "tool"), "{name}");
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}

#[tokio::test]
async fn a_structure_and_its_text_are_the_same_definition() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let by_text = json!({"tool_name": "work", "created_at": 500, "runtime_limits": {"fuel": 5000}});
    let by_text = client.put_definition(definition(&by_text)).await.unwrap().into_inner().definition_hash;
    let wire = |kind| WireValue { kind: Some(kind) };
    let limits = Struct { fields: [("fuel".to_owned(), wire(Kind::NumberValue(5000.0)))].into() };
    let structure = Struct {
        fields: [
            ("tool_name".to_owned(), wire(Kind::StringValue("work".to_owned()))),
            ("created_at".to_owned(), wire(Kind::NumberValue(500.0))),
            ("runtime_limits".to_owned(), wire(Kind::StructValue(limits))),
        ]
        .into(),
    };
    let request =
        PutDefinitionRequest { namespace: "ops".to_owned(), document: Some(DefinitionDocument::Definition(structure)) };
    assert_eq!(client.put_definition(request).await.unwrap().into_inner().definition_hash, by_text);
    let grain = client.get_grain(GetGrainRequest { grain_hash: by_text }).await.unwrap().into_inner();
    let fields: Value = serde_json::from_str(&grain.fields_json).unwrap();
    let expected = json!({"type": "tool", "kind": "definition", "tool_name": "work", "namespace": "ops",
        "created_at": 500, "confidence": 1.0, "runtime_limits": {"fuel": 5000}});
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn the_documents_namespace_and_time_come_first() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let document = json!({"tool_name": "work", "namespace": "mine"});
    let hash = client.put_definition(definition(&document)).await.unwrap().into_inner().definition_hash;
    let grain = client.get_grain(GetGrainRequest { grain_hash: hash }).await.unwrap().into_inner();
    let fields: Value = serde_json::from_str(&grain.fields_json).unwrap();
    assert_eq!((&fields["namespace"], &fields["created_at"]), (&json!("mine"), &json!(1_700_000_000_000_i64)));
    for document in [json!({"tool_name": "work", "namespace": null}), json!({"tool_name": "work", "namespace": 7})] {
        let status = client.put_definition(definition(&document)).await.unwrap_err();
        refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_wrong_document_is_refused_with_the_rule_and_the_field() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    for (document, field) in [
        (json!({}), "tool_name"),
        (json!({"tool_name": "a b"}), "tool_name"),
        (json!({"tool_name": "x".repeat(65)}), "tool_name"),
        (json!({"tool_name": "t", "kind": "execution"}), "kind"),
        (json!({"tool_name": "t", "runtime": "python3"}), "runtime"),
        (json!({"tool_name": "t", "runtime": "wasm32-areev"}), "runtime"),
        (json!({"tool_name": "t", "capabilities": []}), "capabilities"),
        (json!({"tool_name": "t", "runtime_limits": {"cpu": 1}}), "cpu"),
        (json!({"tool_name": "t", "input_schema": {"type": "object", "oneOf": []}}), "input_schema"),
        (json!({"tool_name": "t", "namespace": "a b"}), "namespace"),
        (json!({"tool_name": "t", "cnt": 5}), "tool_content"),
    ] {
        let status = client.put_definition(definition(&document)).await.unwrap_err();
        let text = refused(&status, Reason::BadGrain, Code::InvalidArgument);
        assert!(text.contains(field), "{document}: {text}");
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, field, "{document}");
    }
    for text in ["", "nonsense", "[]", "{\"tool_name\":\"t\",\"input\":1e999}", "{\"tool_name\":\"t\"} x"] {
        let document = Some(DefinitionDocument::DefinitionJson(text.to_owned()));
        let request = PutDefinitionRequest { namespace: "ops".to_owned(), document };
        let status = client.put_definition(request).await.unwrap_err();
        refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
    }
    let status = client.put_plan(plan(&json!({"nodes": ["a", "a"]}))).await.unwrap_err();
    refused(&status, Reason::BadGrain, Code::InvalidArgument);
    let status = client.put_plan(PutPlanRequest::default()).await.unwrap_err();
    refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
}

#[tokio::test]
async fn grains_from_elsewhere_are_kept_as_they_are_and_malformed_ones_refused() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    for file in ["grains-other.json", "grains-typed.json", "grains-read.json"] {
        let member = if file == "grains-read.json" { "grains" } else { "vectors" };
        for vector in list(file, member) {
            let grain = bytes(&vector);
            let stored = client.put_grain(PutGrainRequest { grain: grain.clone() }).await.unwrap().into_inner();
            assert_eq!(stored.grain_hash, text(&vector, "hash_hex"));
            assert_eq!(stored.grain_type, text(&vector, "type"));
            let request = GetGrainRequest { grain_hash: stored.grain_hash };
            assert_eq!(client.get_grain(request).await.unwrap().into_inner().grain, grain);
        }
    }
    for grain in
        [Vec::new(), vec![0; 100], vec![0xff; 17 << 20], bytes(&list("grains.json", "vectors")[0])[1..].to_vec()]
    {
        let status = client.put_grain(PutGrainRequest { grain }).await.unwrap_err();
        refused(&status, Reason::BadGrain, Code::InvalidArgument);
    }
    let status = client.get_grain(GetGrainRequest { grain_hash: Digest::ZERO.to_hex() }).await.unwrap_err();
    refused(&status, Reason::GrainNotFound, Code::NotFound);
    let status = client.get_grain(GetGrainRequest { grain_hash: "zz".to_owned() }).await.unwrap_err();
    refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
}

#[tokio::test]
async fn the_largest_grain_is_stored_and_its_bytes_read_back() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let head = hex::decode("010005a92c6553f10087a163cb3ff0000000000000a26361cf0000018bcfe56800a3636e74db").unwrap();
    let tail = hex::decode("a26e73a36f7073a3736967a178a174a4746f6f6ca2746ea174").unwrap();
    let fill = (16 << 20) - head.len() - 4 - tail.len();
    let length = u32::try_from(fill).unwrap().to_be_bytes();
    let grain = [head, length.to_vec(), vec![1; fill], tail].concat();
    assert_eq!(grain.len(), 16 << 20);
    let stored = client.put_grain(PutGrainRequest { grain: grain.clone() }).await.unwrap().into_inner();
    let read = client.get_grain(GetGrainRequest { grain_hash: stored.grain_hash }).await.unwrap().into_inner();
    assert!(read.grain == grain && read.fields_json.is_empty());
}

#[tokio::test]
async fn lists_are_paged_and_a_foreign_token_is_refused() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    for time in 0..5 {
        client.put_definition(definition(&json!({"tool_name": format!("t{time}"), "created_at": time}))).await.unwrap();
        client.put_plan(plan(&json!({"nodes": ["a"], "name": "p", "created_at": time}))).await.unwrap();
    }
    let request = |page_size, page_token: &str| ListDefinitionsRequest {
        namespace: "ops".to_owned(),
        page_size,
        page_token: page_token.to_owned(),
    };
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = client.list_definitions(request(2, &token)).await.unwrap().into_inner();
        names.extend(page.definitions.into_iter().map(|summary| summary.tool_name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
    let plans = ListPlansRequest { namespace: "ops".to_owned(), page_size: 3, page_token: String::new() };
    let page = client.list_plans(plans.clone()).await.unwrap().into_inner();
    let times: Vec<i32> = page.plans.iter().map(|plan| plan.created_at.unwrap().nanos / 1_000_000).collect();
    assert_eq!(times, [4, 3, 2]);
    for token in ["nonsense!", "AAAA", page.next_page_token.as_str(), &"A".repeat(5000)] {
        let status = client.list_definitions(request(2, token)).await.unwrap_err();
        refused(&status, Reason::BadPageToken, Code::InvalidArgument);
    }
    let status = client.list_definitions(request(1001, "")).await.unwrap_err();
    refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
    let status = client.list_plans(ListPlansRequest { namespace: String::new(), ..plans }).await.unwrap_err();
    refused(&status, Reason::InvalidArgument, Code::InvalidArgument);
}

#[tokio::test]
async fn a_plan_is_told_every_problem_at_once() {
    let host = served(LocalAccess).await;
    let mut client = host.client.clone();
    let ask = |plan| ValidatePlanRequest { namespace: "ops".to_owned(), plan: Some(plan) };
    let document = json!({"nodes": ["a", "b", "lost"], "edges": [{"src": "a", "dst": "b", "cond": "=="}]});
    let problems = client.validate_plan(ask(Plan::PlanJson(document.to_string()))).await.unwrap().into_inner().problems;
    let codes: Vec<&str> = problems.iter().map(|problem| problem.code.as_str()).collect();
    // The plan as a whole, then each node: none of the three is bound.
    assert_eq!(codes, ["RUN-E005", "RUN-E003", "RUN-E006", "RUN-E006", "RUN-E006"], "{problems:?}");
    let uri = Digest::of("code").to_uri();
    let code = json!({"tool_name": "work", "executor_uri": uri, "runtime": "wasm32-areev"});
    let work = client.put_definition(definition(&code)).await.unwrap().into_inner().definition_hash;
    let document = json!({"nodes": ["x", "y"], "edges": [{"src": "x", "dst": "y"}],
        "bindings": {"x": work, "y": "nonsense"}, "created_at": 1});
    let stored = client.put_plan(plan(&document)).await.unwrap().into_inner().plan_hash;
    let problems = client.validate_plan(ask(Plan::PlanHash(stored))).await.unwrap().into_inner().problems;
    let found: Vec<_> = problems.iter().map(|problem| (problem.code.as_str(), problem.node.as_str())).collect();
    assert!(found.contains(&("RUN-E004", "y")) && found.contains(&("RUN-E018", "x")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.message.contains("--allow-executor")), "{problems:?}");
    for (plan, code, reason) in [
        (Plan::PlanHash(Digest::ZERO.to_hex()), "RUN-E004", "UNRESOLVED"),
        (Plan::PlanHash(work), "RUN-E019", "BAD_PLAN"),
        (Plan::PlanJson("{}".to_owned()), "RUN-E019", "BAD_PLAN"),
        (Plan::PlanJson("{\"nodes\":[\"a\"],\"namespace\":\"a b\"}".to_owned()), "", "BAD_GRAIN"),
    ] {
        let problems = client.validate_plan(ask(plan)).await.unwrap().into_inner().problems;
        assert_eq!((problems[0].code.as_str(), problems[0].reason.as_str()), (code, reason), "{problems:?}");
    }
}

#[tokio::test]
async fn each_call_needs_its_permission_in_its_namespace() {
    const FILE: &str = "[[principal]]\nname = \"user:writer\"\ntoken = \"the-writers-own-token\"\n\
        permissions = { ops = [\"catalog.write\", \"run.read\"] }\n\
        [[principal]]\nname = \"user:nobody\"\ntoken = \"somebody-elses-token\"\n";
    let host = served(StaticAccess::parse(FILE).unwrap()).await;
    let mut client = host.client.clone();
    fn by<T>(token: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    }
    let (writer, nobody) = ("the-writers-own-token", "somebody-elses-token");
    let mine = definition(&json!({"tool_name": "t", "created_at": 1}));
    let theirs = definition(&json!({"tool_name": "t", "namespace": "elsewhere"}));
    let hash = client.put_definition(by(writer, mine.clone())).await.unwrap().into_inner().definition_hash;
    let status = client.put_definition(by(writer, theirs)).await.unwrap_err();
    assert!(refused(&status, Reason::NotPermitted, Code::PermissionDenied).starts_with("RUN-E012: "));
    for status in [
        client.put_definition(by(nobody, mine.clone())).await.unwrap_err(),
        client.get_grain(by(nobody, GetGrainRequest { grain_hash: hash.clone() })).await.unwrap_err(),
        client.put_blob(by(nobody, upload(None, &[b"x"]))).await.unwrap_err(),
        client.stat_blob(by(nobody, StatBlobRequest { digest: hash.clone() })).await.unwrap_err(),
        client.put_grain(by(nobody, PutGrainRequest { grain: vec![0; 20] })).await.unwrap_err(),
    ] {
        refused(&status, Reason::NotPermitted, Code::PermissionDenied);
    }
    let status = client.put_definition(mine).await.unwrap_err();
    refused(&status, Reason::Unauthenticated, Code::Unauthenticated);
    let export = ExportBundleRequest { namespace: "ops".to_owned() };
    let status = client.export_bundle(by(writer, export)).await.unwrap_err();
    assert!(refused(&status, Reason::NotImplemented, Code::Unimplemented).contains("ExportBundle"));
    let actions = ListStepActionsRequest { namespace: "ops".to_owned(), plan_hash: hash.clone(), ..Default::default() };
    let answer = client.list_step_actions(by(writer, actions.clone())).await.unwrap().into_inner();
    assert_eq!(answer.next_page_token, hash, "the question was passed on");
    let status = client.list_step_actions(by(nobody, actions)).await.unwrap_err();
    refused(&status, Reason::NotPermitted, Code::PermissionDenied);
}
