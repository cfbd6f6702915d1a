//! Every grain with known bytes is made and read exactly.

use runner_svc::catalogue::grain::{
    ContentRef, Draft, EmbeddingRef, Grain, GrainType, InvalidationPolicy, Item, Relation, author,
};
use serde_json::{Map, Value, json};

use crate::vectors::{bytes, list, text};

#[test]
fn every_authored_document_has_its_published_bytes_and_hash() {
    let vectors = list("grains.json", "vectors");
    assert_eq!(vectors.len(), 226);
    for vector in &vectors {
        let name = text(vector, "name");
        let kind = GrainType::of_name(text(vector, "type")).unwrap();
        let now_ms = vector["created_at_ms"].as_i64().unwrap_or(1_700_000_000_000);
        let grain = author::from_json(kind, text(vector, "json_text"), text(vector, "namespace"), now_ms)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(name, &grain, vector);
    }
}

#[test]
fn every_grain_of_the_typed_interface_has_its_published_bytes_and_hash() {
    let vectors = list("grains-typed.json", "vectors");
    assert!(vectors.len() > 20);
    for vector in &vectors {
        let name = text(vector, "name");
        let grain = draft(vector).seal().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(name, &grain, vector);
    }
}

#[test]
fn grains_of_other_types_are_carried_verbatim() {
    for vector in &list("grains-other.json", "vectors") {
        assert_reads_back(text(vector, "name"), vector);
    }
}

#[test]
fn grains_of_another_store_are_read_with_the_fields_that_it_saw() {
    let grains = list("grains-read.json", "grains");
    assert!(grains.len() > 30);
    for vector in &grains {
        let name = text(vector, "hash_hex");
        let read = assert_reads_back(name, vector).fields();
        assert_eq!(Value::Object(read), vector["fields"], "{name}");
    }
}

#[test]
fn every_published_refusal_is_refused() {
    let refusals = list("refusals.json", "refusals");
    assert_eq!(refusals.len(), 94);
    for refusal in &refusals {
        let name = text(refusal, "name");
        let document = match (name, &refusal["json_text"]) {
            ("related_to-65-links", _) => sixty_five_links(),
            ("wf-nodes-17MiB", _) => json!({"tool_name": "t", "content": "x".repeat(16 << 20)}).to_string(),
            (_, document) => document.as_str().unwrap().to_owned(),
        };
        let Some(kind) = GrainType::of_name(text(refusal, "type")) else { continue };
        let authored = author::from_json(kind, &document, text(refusal, "namespace"), 0);
        let error = authored.expect_err(name);
        assert!(error.to_string().len() < 1024, "{name}: {error}");
    }
}

#[test]
fn a_link_less_than_a_refused_number_is_accepted() {
    let document = sixty_five_links().replacen(&format!("{},", link()), "", 1);
    author::from_json(GrainType::Tool, &document, "ops", 0).unwrap();
}

#[test]
fn decimals_are_converted_as_the_format_says_and_not_to_the_nearest_float() {
    // Correct rounding gives the neighbour of each; a build with another conversion would give grains other addresses.
    for (written, bits) in INEXACT {
        let document = format!("{{\"tool_name\":\"t\",\"input\":{written}}}");
        let grain = author::from_json(GrainType::Tool, &document, "ops", 0).unwrap();
        let Some(Item::Float(value)) = grain.get("input") else { panic!("{written} is no float") };
        assert_eq!(value.to_bits(), bits, "{written}");
        assert_ne!(written.parse::<f64>().unwrap().to_bits(), bits, "{written} shows nothing");
    }
}

/// Decimals and the floats that they become.
const INEXACT: [(&str, u64); 4] = [
    ("9709.2349486887312202", 0x40c2f69e12cc732c),
    ("91.594725253236e81", 0x512823e6f8dad386),
    ("53302500.4177934379043909", 0x41896aa72357a415),
    ("73.150047202440e-13", 0x3da015fb47f1d3b7),
];

fn assert_same(name: &str, grain: &Grain, vector: &Map<String, Value>) {
    assert_eq!(hex::encode(grain.bytes()), text(vector, "blob_hex"), "{name}");
    assert_eq!(grain.hash().to_hex(), text(vector, "hash_hex"), "{name}");
    assert_reads_back(name, vector);
}

fn assert_reads_back(name: &str, vector: &Map<String, Value>) -> Grain {
    let bytes = bytes(vector);
    let grain = Grain::decode(bytes.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(grain.kind().name(), text(vector, "type"), "{name}");
    assert_eq!(grain.hash().to_hex(), text(vector, "hash_hex"), "{name}");
    assert_eq!(grain.encode_again().unwrap(), bytes, "{name}");
    grain
}

fn link() -> String {
    json!({"hash": "11".repeat(32), "relation_type": "r"}).to_string()
}

fn sixty_five_links() -> String {
    let links = vec![link(); 65].join(",");
    format!("{{\"tool_name\":\"t\",\"related_to\":[{links}]}}")
}

/// Rebuilds a typed vector: its `typed` member says which setter got what.
fn draft(vector: &Map<String, Value>) -> Draft {
    let kind = GrainType::of_name(text(vector, "type")).unwrap();
    let created_at_ms = vector["created_at_ms"].as_i64().unwrap();
    let mut draft = Draft::new(kind, vector["namespace"].as_str(), created_at_ms);
    for (name, value) in vector["typed"].as_object().unwrap() {
        set(&mut draft, kind, name, value);
    }
    draft
}

fn set(draft: &mut Draft, kind: GrainType, name: &str, value: &Value) {
    let objects = || value.as_array().unwrap().iter().map(|one| one.as_object().unwrap().clone()).collect::<Vec<_>>();
    let word = || value.as_str().map(|text| text.split(" (").next().unwrap());
    match (name, kind) {
        ("namespace" | "created_at", _) => {}
        ("success_count" | "failure_count" | "supersession_auth" | "supersession_justification", _) => {}
        ("frame_id" | "sync_group" | "compression_ratio", GrainType::Observation) => {}
        ("executor_kind", _) if word() == Some("host") => {}
        ("content_refs", _) => draft.content_refs(&objects().iter().map(content_ref).collect::<Vec<_>>()),
        ("embedding_refs", _) => draft.embedding_refs(&objects().iter().map(embedding_ref).collect::<Vec<_>>()),
        ("related_to", _) => draft.relations(&objects().iter().map(relation).collect::<Vec<_>>()),
        ("provenance_chain", _) => draft.provenance_chain(&objects()),
        ("invalidation_policy", _) => draft.invalidation_policy(&policy(value.as_object().unwrap())),
        ("transient_definition_hash", _) => draft.set(name, Item::Binary(vec![0xab; 32])),
        ("context", _) => draft.set_context(value.clone()),
        ("context_data", GrainType::State) => draft.set("context", Item::of(value)),
        ("extra_fields", _) => {
            for (name, value) in value.as_object().unwrap() {
                draft.extra(name, value.clone());
            }
        }
        ("edges", _) => {
            let edges = value.as_array().unwrap().iter().map(edge);
            draft.set(name, Item::List(edges.collect()));
        }
        ("confidence" | "importance", _) => draft.set(name, Item::Float(value.as_f64().unwrap())),
        _ => draft.set(name, Item::of(value)),
    }
}

fn edge(edge: &Value) -> Item {
    let mut members = Map::new();
    for (key, value) in ["src", "dst", "cond", "mxc"].iter().zip(edge.as_array().unwrap()) {
        if !value.is_null() {
            members.insert((*key).to_owned(), value.clone());
        }
    }
    Item::of(&Value::Object(members))
}

fn owned(members: &Map<String, Value>, name: &str) -> Option<String> {
    members.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn number(members: &Map<String, Value>, name: &str) -> Option<u64> {
    members.get(name).and_then(Value::as_u64)
}

fn content_ref(members: &Map<String, Value>) -> ContentRef {
    ContentRef {
        uri: owned(members, "uri").unwrap(),
        checksum: owned(members, "checksum"),
        metadata: members.get("metadata").and_then(Value::as_object).cloned(),
        modality: owned(members, "modality"),
        mime_type: owned(members, "mime_type"),
        size_bytes: number(members, "size_bytes"),
    }
}

fn embedding_ref(members: &Map<String, Value>) -> EmbeddingRef {
    EmbeddingRef {
        vector_id: owned(members, "vector_id").unwrap(),
        dimensions: number(members, "dimensions"),
        distance_metric: owned(members, "distance_metric"),
        model: owned(members, "model"),
        modality_source: owned(members, "modality_source"),
    }
}

fn relation(members: &Map<String, Value>) -> Relation {
    Relation {
        hash: owned(members, "hash").unwrap(),
        relation_type: owned(members, "relation_type").unwrap(),
        weight: members.get("weight").and_then(Value::as_f64),
    }
}

fn policy(members: &Map<String, Value>) -> InvalidationPolicy {
    let authorized = members.get("authorized").and_then(Value::as_array);
    InvalidationPolicy {
        mode: owned(members, "mode").unwrap(),
        authorized: authorized.map(|all| all.iter().map(|one| one.as_str().unwrap().to_owned()).collect()),
        fallback_mode: owned(members, "fallback_mode"),
        locked_until: members.get("locked_until").and_then(Value::as_i64),
        protection_reason: owned(members, "protection_reason"),
        scope: owned(members, "scope"),
        threshold: number(members, "threshold"),
    }
}
