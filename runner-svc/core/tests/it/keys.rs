//! The names of effects, byte for byte. The expected hashes were computed by another program from the rules.

use runner_core::key::{EffectKey, EffectKind};

fn task() -> EffectKey {
    EffectKey {
        task_path: "split/0007".to_owned(),
        node: "größe".to_owned(),
        attempt: 258,
        effect_seq: 3,
        kind: EffectKind::Ask,
    }
}

#[test]
fn a_tool_call_id_is_the_hash_of_its_separated_parts_with_big_endian_numbers() {
    let key = EffectKey::of_node("work", 1, EffectKind::Tool);
    let expected = "afe7fbcbbf89c3baa6d74c942ca15d7bf7295305412aceb5b6fdb812f08c8b7b";
    assert_eq!(key.tool_call_id("r1").to_hex(), expected);
    let expected = "ddd1d4e96bf0ea3d1caa590dc380c32d6546d50d01325edb17266a90519e26c8";
    assert_eq!(task().tool_call_id("order 4711").to_hex(), expected);
}

#[test]
fn an_idempotency_key_is_the_hash_of_its_separated_parts_with_decimal_numbers_and_the_input() {
    let key = EffectKey::of_node("work", 1, EffectKind::Tool);
    let expected = "8899b839203311d82d2dd987e3ef3a307bac6830fcd64c373998d7bfc50d16f6";
    assert_eq!(key.idempotency_key("r1", r#"{"q":7}"#).to_hex(), expected);
    let expected = "8a69caa928c46227efff31f63901470e7cfa3ca798f070b3d18ec14df737e6fc";
    assert_eq!(task().idempotency_key("order 4711", "{}").to_hex(), expected);
}

#[test]
fn a_key_leaves_out_what_a_static_node_does_not_have() {
    let key = EffectKey::of_node("work", 1, EffectKind::Tool);
    assert_eq!(serde_json::to_string(&key).unwrap(), r#"{"node":"work","attempt":1,"kind":"tool"}"#);
    let text = serde_json::to_string(&task()).unwrap();
    assert_eq!(serde_json::from_str::<EffectKey>(&text).unwrap(), task());
}
