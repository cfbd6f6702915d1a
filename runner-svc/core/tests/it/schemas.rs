//! The dialect of schemas: what it takes, what it refuses by name, and that no schema and no value makes it work without end.

use std::time::{Duration, Instant};

use runner_core::schema::{self, Schema};
use serde_json::{Value, json};

/// Far more than any bounded piece of work takes, far less than an unbounded one.
const BOUNDED: Duration = Duration::from_secs(60);

fn object(properties: Value) -> Schema {
    Schema::read(&json!({"type": "object", "properties": properties})).unwrap()
}

/// Whether a value fits under the member `v`.
fn fits(schema: Value, value: Value) -> bool {
    object(json!({"v": schema})).check(&json!({"v": value})).is_ok()
}

fn refused(schema: Value) -> String {
    Schema::read(&schema).unwrap_err().to_string()
}

#[test]
fn every_keyword_is_held_to() {
    for (rule, good, wrong) in [
        (json!({"type": "integer"}), json!(3), json!(3.5)),
        (json!({"type": "integer"}), json!(3.0), json!("3")),
        (json!({"type": ["string", "null"]}), json!(null), json!(1)),
        (json!({"enum": ["a", 1, {"x": [1]}]}), json!({"x": [1.0]}), json!({"x": [1], "y": 2})),
        (json!({"const": {"z": 1}}), json!({"z": 1}), json!({"z": 2})),
        (json!({"minimum": 9007199254740993_u64}), json!(9007199254740993_u64), json!(9007199254740992_u64)),
        (json!({"maximum": 10}), json!(10), json!(10.5)),
        (json!({"exclusiveMinimum": 0}), json!(1), json!(0)),
        (json!({"exclusiveMaximum": 0}), json!(-1), json!(0)),
        (json!({"multipleOf": 0.01}), json!(19.99), json!(19.995)),
        (json!({"minLength": 2}), json!("éé"), json!("é")),
        (json!({"maxLength": 2}), json!("éé"), json!("ééé")),
        (json!({"pattern": "^[a-z]+$"}), json!("abc"), json!("abC")),
        (json!({"format": "email"}), json!("a@b.example"), json!("a")),
        (json!({"minItems": 1, "maxItems": 2}), json!([1]), json!([1, 2, 3])),
        (json!({"items": {"type": "number"}}), json!([1, 2.5]), json!([1, "2"])),
        (json!({"items": [{"type": "number"}, {"type": "string"}]}), json!([1, "2", null]), json!(["2"])),
        (json!({"minProperties": 1}), json!({"a": 1}), json!({})),
        (json!({"maxProperties": 1}), json!({"a": 1}), json!({"a": 1, "b": 2})),
        (json!({"required": ["a"]}), json!({"a": null}), json!({"b": 1})),
        (json!({"properties": {"a": {"type": "string"}}}), json!({"a": "x", "b": 1}), json!({"a": 1})),
        (json!({"properties": {"a": true}, "additionalProperties": false}), json!({"a": 1}), json!({"b": 1})),
        (json!({"additionalProperties": {"type": "number"}}), json!({"a": 1}), json!({"a": "1"})),
        (json!(true), json!(null), Value::Null),
    ] {
        assert!(fits(rule.clone(), good.clone()), "{good} fits {rule}");
        if rule != json!(true) {
            assert!(!fits(rule.clone(), wrong.clone()), "{wrong} does not fit {rule}");
        }
    }
    assert!(!fits(json!(false), json!(1)));
}

#[test]
fn a_rule_for_one_type_binds_no_other() {
    let rule = json!({"minimum": 5, "minLength": 5, "minItems": 5, "minProperties": 5, "pattern": "x{5}"});
    for value in [json!(null), json!(true), json!(5), json!("xxxxx"), json!([1, 2, 3, 4, 5])] {
        assert!(fits(rule.clone(), value.clone()), "{value}");
    }
}

#[test]
fn a_misfit_names_its_place_and_the_rule_and_never_the_value() {
    let schema = object(json!({"order": {"type": "object", "properties": {"a/b": {"items": {"type": "string"}}}}}));
    let misfit = schema.check(&json!({"order": {"a/b": ["x", 4711]}})).unwrap_err().to_string();
    assert_eq!(misfit, "/order/a~1b/1 must be of type string, and is a number");
    let misfit = schema.check(&json!([])).unwrap_err().to_string();
    assert_eq!(misfit, "the value must be of type object, and is an array");
}

#[test]
fn what_the_dialect_does_not_have_is_refused_by_name_and_nothing_is_ever_fetched() {
    for keyword in ["$ref", "$dynamicRef", "$defs", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties"] {
        let text = refused(json!({"type": "object", keyword: "https://example.com/schema.json"}));
        assert!(text.contains(&format!("`{keyword}`")), "{text}");
    }
    let nested = json!({"type": "object", "properties": {"a": {"items": {"$ref": "file:///etc/passwd"}}}});
    assert!(refused(nested).contains("`$ref`"));
    // Remarks are no keywords: whatever they name is not looked at.
    let remarked = json!({"type": "object", "$schema": "https://example.com/x", "$id": "file:///etc/passwd", "x-a": 1});
    assert!(Schema::read(&remarked).is_ok());
}

#[test]
fn a_malformed_keyword_is_refused_by_name() {
    for (schema, says) in [
        (json!([]), "an object"),
        (json!({"type": "string"}), "type \"object\""),
        (json!({"type": "object", "required": "a"}), "required"),
        (json!({"type": "object", "required": [1]}), "required"),
        (json!({"type": "object", "minProperties": -1}), "minProperties"),
        (json!({"type": "object", "properties": []}), "properties"),
        (json!({"type": "object", "properties": {"a": 1}}), "a schema must be an object"),
        (json!({"type": "object", "properties": {"a": {"type": "text"}}}), "`\"text\"`"),
        (json!({"type": "object", "properties": {"a": {"minimum": "1"}}}), "minimum"),
        (json!({"type": "object", "properties": {"a": {"multipleOf": 0}}}), "multipleOf"),
        (json!({"type": "object", "properties": {"a": {"enum": {}}}}), "enum"),
        (json!({"type": "object", "properties": {"a": {"pattern": 1}}}), "pattern"),
        (json!({"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}), "`(?=x)`"),
        (json!({"type": "object", "properties": {"a": {"format": "ipv4"}}}), "format"),
    ] {
        let text = refused(schema);
        assert!(text.contains(says), "{says} is not in {text}");
    }
}

#[test]
fn a_schema_is_bounded_in_depth_and_number_and_in_its_patterns() {
    let deep = (0..40).fold(json!({}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    assert!(refused(deep).contains("deeper than 16"));
    let wide: serde_json::Map<String, Value> = (0..5000).map(|n| (n.to_string(), json!({}))).collect();
    assert!(refused(json!({"type": "object", "properties": wide})).contains("more than 4096"));
    let begun = Instant::now();
    let many = |pattern: &str, count: usize| {
        let properties: serde_json::Map<String, Value> =
            (0..count).map(|n| (n.to_string(), json!({"pattern": pattern}))).collect();
        refused(json!({"type": "object", "properties": properties}))
    };
    assert!(many("a", 300).contains("more than 256 patterns"));
    assert!(many(r"^\w{20}$", 30).contains("together"));
    assert!(many(r"((\w{100}){100}){100}", 1).contains("does not compile"));
    assert!(begun.elapsed() < BOUNDED);
}

#[test]
fn no_value_makes_a_check_work_without_end() {
    let begun = Instant::now();
    // Every state of this pattern stays alive at every byte.
    let pattern = object(json!({"v": {"pattern": "[ab]*a[ab]{900}c"}}));
    let text = "ab".repeat(4 << 20);
    let misfit = pattern.check(&json!({"v": text})).unwrap_err().to_string();
    assert!(misfit.contains("too large to be checked"), "{misfit}");
    // Each item is compared with every allowed value to its last element.
    let near: Vec<Value> = (0..200).map(|n| json!([vec![0; 500], n])).collect();
    let choice = object(json!({"v": {"items": {"enum": near}}}));
    let items = vec![json!([vec![0; 500], -1]); 5000];
    let misfit = choice.check(&json!({"v": items})).unwrap_err().to_string();
    assert!(misfit.contains("/v/0 is none of the 200"), "the first misfit ends the check: {misfit}");
    let items = vec![json!([vec![0; 500], 199]); 5000];
    let misfit = choice.check(&json!({"v": items})).unwrap_err().to_string();
    assert!(misfit.contains("too large to be checked"), "{misfit}");
    assert!(begun.elapsed() < BOUNDED);
}

#[test]
fn a_large_array_that_fits_is_checked_to_its_end() {
    let schema = object(json!({"v": {"items": {"type": "integer", "minimum": 0}}}));
    let mut items = vec![json!(7); 1_000_000];
    assert!(schema.check(&json!({"v": items.clone()})).is_ok());
    items[999_999] = json!(-1);
    let misfit = schema.check(&json!({"v": items})).unwrap_err().to_string();
    assert_eq!(misfit, "/v/999999 must be at least 0");
}

#[test]
fn a_schema_is_read_once() {
    let document = json!({"type": "object", "title": "read once"});
    let (first, second) = (schema::of(&document).unwrap(), schema::of(&document).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert!(schema::of(&json!({"type": "object", "oneOf": []})).is_err());
}
