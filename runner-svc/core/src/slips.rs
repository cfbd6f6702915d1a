//! What in a plan or a definition looks like a slip of the pen: keys that nobody reads, where one that decides something was
//! meant. It keeps nothing from being stored or started.

use serde_json::{Map, Value};

use crate::text::shown;

/// Slips of one document that are told, at most.
pub const SLIPS_MAX: usize = 32;

/// The fields that decide how a plan runs.
const OF_PLANS: [&str; 5] = ["nodes", "edges", "bindings", "retries", "reducers"];
/// Those that decide what a definition's tool is and may do.
const OF_DEFINITIONS: [&str; 10] = [
    "tool_description",
    "executor_kind",
    "executor_uri",
    "runtime",
    "runtime_limits",
    "capabilities",
    "locked_params",
    "input_schema",
    "output_schema",
    "strict",
];
/// The members of an edge.
const EDGE: [&str; 4] = ["src", "dst", "cond", "max_cycles"];
/// Words for a member of an edge that are not spelt like it.
const EDGE_SYNONYMS: [(&str, &str); 6] = [
    ("condition", "cond"),
    ("if", "cond"),
    ("when", "cond"),
    ("from", "src"),
    ("to", "dst"),
    ("max_iterations", "max_cycles"),
];
/// What a run is told and a plan is not, and where.
const OPTIONS: [(&str, &str); 6] = [
    ("policies", "options.node_policies"),
    ("node_policies", "options.node_policies"),
    ("budgets", "options.budgets"),
    ("on_dangling", "options.on_dangling"),
    ("ask_ttl", "options.ask_ttl"),
    ("initiator", "options.initiator"),
];
/// Longest key that is compared, in characters: whatever is longer is none of these.
const KEY_CHARS_MAX: usize = 32;

/// A sentence for each slip in a plan. A key that only describes it is none, nor is one beside the field that it is like.
pub fn of_plan(fields: &Value) -> Vec<String> {
    let Some(fields) = fields.as_object() else { return Vec::new() };
    let edges = fields.get("edges").and_then(Value::as_array).into_iter().flatten().enumerate();
    let of_edges = edges.filter_map(|(place, edge)| Some((place, edge.as_object()?)));
    let of_edges = of_edges.flat_map(|(place, edge)| edge.keys().filter_map(move |key| of_edge(place, key)));
    let misspelt = fields.keys().filter_map(|key| misplaced(key).or_else(|| misspelt(fields, key, "plan", &OF_PLANS)));
    misspelt.chain(of_edges).take(SLIPS_MAX).collect()
}

/// The same of a definition.
pub fn of_definition(fields: &Map<String, Value>) -> Vec<String> {
    let misspelt = fields.keys().filter_map(|key| misspelt(fields, key, "definition", &OF_DEFINITIONS));
    misspelt.take(SLIPS_MAX).collect()
}

fn misplaced(key: &str) -> Option<String> {
    let (_, option) = OPTIONS.iter().find(|(name, _)| *name == key)?;
    Some(format!("{} in a plan does nothing: give it to StartRun, as {option}", shown(key)))
}

fn misspelt(fields: &Map<String, Value>, key: &str, document: &str, decide: &[&str]) -> Option<String> {
    let absent = |field: &&&str| !fields.contains_key(**field);
    let meant = decide.iter().filter(absent).find(|field| is_like(key, field))?;
    Some(format!("{} is kept with the {document} and does nothing: did you mean `{meant}`?", shown(key)))
}

fn of_edge(place: usize, key: &str) -> Option<String> {
    if EDGE.contains(&key) {
        return None;
    }
    let synonym = EDGE_SYNONYMS.iter().find(|(word, _)| *word == key).map(|(_, member)| *member);
    let meant = synonym.or_else(|| EDGE.into_iter().find(|member| is_like(key, member)));
    let advice = match meant {
        Some(member) => format!("did you mean `{member}`?"),
        None => "an edge has src, dst, cond and max_cycles".to_owned(),
    };
    Some(format!("edges[{place}]: {} is no part of an edge and does nothing: {advice}", shown(key)))
}

/// Whether a key is another spelling of a name: other case or dashes, another ending, one or two letters off.
fn is_like(key: &str, name: &str) -> bool {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(KEY_CHARS_MAX + 1).collect()
    };
    let (key, name) = (plain(key), plain(name));
    if key.is_empty() || key.len() > KEY_CHARS_MAX {
        return false;
    }
    const STEM_CHARS_MIN: usize = 4;
    let stem = key.iter().zip(&name).take_while(|(a, b)| a == b).count();
    let other_ending = stem >= STEM_CHARS_MIN && key.len().abs_diff(name.len()) <= 3 && key.len() - stem <= 1;
    let edits_max = if name.len() < 6 { 1 } else { 2 };
    other_ending || edits(&key, &name) <= edits_max
}

/// Letters to change, add, leave out or swap with their neighbour to make one word of the other.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(fields: Value) -> Vec<String> {
        of_plan(&fields)
    }

    #[test]
    fn a_misspelt_field_is_told_with_the_one_that_was_meant() {
        for (key, meant) in [
            ("reducer", "reducers"),
            ("redcuers", "reducers"),
            ("Retries", "retries"),
            ("retry", "retries"),
            ("edge", "edges"),
            ("bindngs", "bindings"),
            ("re-tries", "retries"),
        ] {
            let told = told(json!({"nodes": ["a"], key: {}}));
            let expected = format!("`{key}` is kept with the plan and does nothing: did you mean `{meant}`?");
            assert_eq!(told, [expected], "{key}");
        }
    }

    #[test]
    fn a_member_that_an_edge_does_not_have_is_told_with_its_place() {
        let told = told(json!({"edges": [
            {"src": "a", "dst": "b"}, {"src": "a", "dst": "b", "condition": "x", "maxCycles": 1, "label": "l"}]}));
        assert_eq!(
            told,
            [
                "edges[1]: `condition` is no part of an edge and does nothing: did you mean `cond`?",
                "edges[1]: `label` is no part of an edge and does nothing: an edge has src, dst, cond and max_cycles",
                "edges[1]: `maxCycles` is no part of an edge and does nothing: did you mean `max_cycles`?",
            ]
        );
    }

    #[test]
    fn what_a_run_is_told_is_no_part_of_a_plan() {
        assert_eq!(
            told(json!({"nodes": ["a"], "policies": {"a": {"timeout_ms": 5}}})),
            ["`policies` in a plan does nothing: give it to StartRun, as options.node_policies"]
        );
    }

    #[test]
    fn what_describes_a_plan_is_no_slip() {
        let described = json!({"nodes": ["a"], "edges": [], "name": "n", "notes": "beside nodes", "description": "d",
            "version": 2, "status": "draft", "trigger": {}, "reads": [], "llm": {}, "tags": [], "type": "workflow",
            "created_at": 1, "namespace": "ops", "related_to": [], "x".repeat(100_000): 1, "": 1, "-": 1});
        assert_eq!(told(described), Vec::<String>::new());
    }

    #[test]
    fn a_misspelt_field_of_a_definition_is_told_and_what_describes_it_is_not() {
        let told = |fields: Value| of_definition(fields.as_object().expect("an object"));
        for (key, meant) in [
            ("locked_param", "locked_params"),
            ("lockedParams", "locked_params"),
            ("executor_url", "executor_uri"),
            ("executer_kind", "executor_kind"),
            ("capabilites", "capabilities"),
            ("inputschema", "input_schema"),
            ("runtime_limit", "runtime_limits"),
        ] {
            let expected = format!("`{key}` is kept with the definition and does nothing: did you mean `{meant}`?");
            assert_eq!(told(json!({"tool_name": "work", key: {}})), [expected], "{key}");
        }
        let fine = [
            "tool_name",
            "kind",
            "annotations",
            "examples",
            "namespace",
            "created_at",
            "status",
            "content",
            "error",
            "input",
            "is_error",
            "async_mode",
            "spec_hash",
            "tags",
            "context",
            "confidence",
            "related_to",
            "user_id",
            "version",
        ];
        let described = fine.into_iter().map(|key| (key.to_owned(), json!(1))).collect();
        assert_eq!(told(Value::Object(described)), Vec::<String>::new());
    }

    #[test]
    fn not_more_than_a_few_are_told() {
        let edges: Vec<Value> = (0..1000).map(|_| json!({"src": "a", "dst": "b", "when": "x"})).collect();
        assert_eq!(told(json!({"edges": edges})).len(), SLIPS_MAX);
    }
}
