//! Conditions of edges: `path == literal`, `path != literal`, `path exists`, `path`, `!path`.

use serde_json::Value;

/// Longest condition, in bytes.
pub const CONDITION_BYTES_MAX: usize = 4096;

/// A parsed condition. Evaluating it never fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    path: Path,
    test: Test,
}

/// Segments of `[A-Za-z0-9_-]+`, walked through objects only.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    key: String,
    rest: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Equal(Value),
    NotEqual(Value),
    Exists,
    Truthy,
    Falsy,
}

/// The text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; write `path == literal`, `path != literal`, `path exists`, `path` or `!path`")]
pub struct BadCondition {
    problem: String,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// Says what is wrong with the text and which forms there are.
    pub fn parse(text: &str) -> Result<Self, BadCondition> {
        if text.len() > CONDITION_BYTES_MAX {
            return bad(format!("it has {} bytes, over {CONDITION_BYTES_MAX}", text.len()));
        }
        let text = text.trim();
        if let Some(negated) = text.strip_prefix('!') {
            return match split_path(negated.trim_start())? {
                (path, "") => Ok(Self { path, test: Test::Falsy }),
                (_, rest) => bad(format!("{} after a negated path", crate::text::shown(rest))),
            };
        }
        let (path, rest) = split_path(text)?;
        let test = if rest.is_empty() {
            Test::Truthy
        } else if rest == "exists" {
            Test::Exists
        } else if let Some(literal) = rest.strip_prefix("==") {
            Test::Equal(parse_literal(literal)?)
        } else if let Some(literal) = rest.strip_prefix("!=") {
            Test::NotEqual(parse_literal(literal)?)
        } else {
            return bad(format!("{} is no operator", crate::text::shown(rest)));
        };
        Ok(Self { path, test })
    }

    /// The top-level key of the state that the condition reads.
    pub fn key(&self) -> &str {
        &self.path.key
    }

    /// Whether it holds, given the value under [`Condition::key`]. Missing is unequal to everything and falsy.
    pub fn holds(&self, under_key: Option<&Value>) -> bool {
        let found =
            self.path.rest.iter().try_fold(under_key, |value, segment| {
                value.and_then(Value::as_object).map(|object| object.get(segment))
            });
        let found = found.flatten();
        match &self.test {
            Test::Equal(literal) => found == Some(literal),
            Test::NotEqual(literal) => found != Some(literal),
            Test::Exists => found.is_some(),
            Test::Truthy => found.is_some_and(truthy),
            Test::Falsy => !found.is_some_and(truthy),
        }
    }
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// The path at the text's beginning, and what follows it without leading white space.
fn split_path(text: &str) -> Result<(Path, &str), BadCondition> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))).unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    if path.is_empty() {
        return bad(if text.is_empty() {
            "it is empty".to_owned()
        } else {
            format!("{} does not begin with a path", crate::text::shown(text))
        });
    }
    let mut segments = path.split('.').map(str::to_owned);
    let key = segments.next().unwrap_or_default();
    let rest_of_path: Vec<String> = segments.collect();
    if key.is_empty() || rest_of_path.iter().any(String::is_empty) {
        return bad(format!("path {} has an empty segment", crate::text::shown(path)));
    }
    Ok((Path { key, rest: rest_of_path }, rest.trim_start()))
}

fn parse_literal(text: &str) -> Result<Value, BadCondition> {
    match serde_json::from_str(text) {
        Ok(Value::Array(_) | Value::Object(_)) => {
            bad(format!("{} is a list or an object; compare with a string, number, bool or null", shown_trimmed(text)))
        }
        Ok(literal) => Ok(literal),
        Err(_) => bad(format!("{} is no JSON literal (a string needs its double quotes)", shown_trimmed(text))),
    }
}

fn shown_trimmed(text: &str) -> String {
    crate::text::shown(text.trim())
}

fn bad<T>(problem: String) -> Result<T, BadCondition> {
    Err(BadCondition { problem })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(text: &str, state: &Value) -> bool {
        let condition = Condition::parse(text).unwrap();
        condition.holds(state.get(condition.key()))
    }

    #[test]
    fn equality_is_strict_json_equality() {
        let state = json!({"n": 1, "f": 1.0, "s": "1", "b": true, "z": null, "o": {"v": "x == y"}});
        for text in ["n == 1", "f == 1.0", "s == \"1\"", "b == true", "z == null", "o.v == \"x == y\"", "n==1"] {
            assert!(holds(text, &state), "{text}");
        }
        for text in ["n == 1.0", "f == 1", "s == 1", "n == \"1\"", "b == \"true\"", "o == null"] {
            assert!(!holds(text, &state), "{text}");
        }
    }

    #[test]
    fn integers_of_64_bits_are_compared_exactly() {
        let state = json!({"n": 9_007_199_254_740_993_u64});
        assert!(holds("n == 9007199254740993", &state));
        assert!(!holds("n == 9007199254740992", &state));
    }

    #[test]
    fn a_missing_path_is_unequal_to_everything() {
        let state = json!({"a": {"b": 1}, "list": [{"b": 1}]});
        for path in ["x", "a.x", "a.b.c", "list.b", "list.0"] {
            assert!(!holds(&format!("{path} == null"), &state), "{path}");
            assert!(holds(&format!("{path} != null"), &state), "{path}");
            assert!(!holds(&format!("{path} exists"), &state), "{path}");
            assert!(!holds(path, &state), "{path}");
            assert!(holds(&format!("!{path}"), &state), "{path}");
        }
    }

    #[test]
    fn null_false_empty_and_zero_are_false() {
        for value in [json!(null), json!(false), json!(""), json!(0), json!(0.0), json!([]), json!({})] {
            let state = json!({ "v": value });
            assert!(!holds("v", &state), "{value}");
            assert!(holds("!v", &state), "{value}");
            assert!(holds("v exists", &state), "{value}");
        }
        for value in [json!(true), json!("0"), json!(-1), json!(0.5), json!([0]), json!({"a": null})] {
            assert!(holds("v", &json!({ "v": value })), "{value}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_with_the_forms_that_are() {
        for text in [
            "",
            " ",
            "!",
            "== 1",
            "a = 1",
            "a == ",
            "a == x",
            "a == [1]",
            "a == {}",
            "a..b",
            ".a",
            "a.",
            "a exists b",
            "a > 1",
            "!a == 1",
            "a == 1 && b",
            "größe == 1",
            "a[0]",
        ] {
            let error = Condition::parse(text).unwrap_err().to_string();
            assert!(error.contains("path exists"), "{text:?}: {error}");
        }
        assert!(Condition::parse(&"a".repeat(CONDITION_BYTES_MAX + 1)).is_err());
    }
}
