//! JSON documents on the wire: text, exact, or a structure, for use by hand.

use prost_types::{Struct, Value as WireValue, value::Kind};
use proto::fault::{Fault, Reason};
use serde_json::{Map, Number, Value};

/// Deepest nesting of a structure; JSON text is held to about the same.
const DEPTH_MAX: usize = 127;

/// A structure as JSON. A double that is integral and fits 64 bits becomes an integer.
pub fn of_struct(field: &str, document: Struct) -> Result<Map<String, Value>, Fault> {
    members(document, DEPTH_MAX)
        .map_err(|problem| Fault::new(Reason::InvalidArgument, format!("{field}: {problem}")).field(field, problem))
}

/// A JSON object's members from its text.
pub fn of_text(field: &str, text: &str) -> Result<Map<String, Value>, Fault> {
    let problem = match serde_json::from_str(text) {
        Ok(Value::Object(members)) => return Ok(members),
        Ok(_) => "must be a JSON object".to_owned(),
        Err(cause) => format!("is no JSON: {cause}"),
    };
    Err(Fault::new(Reason::InvalidArgument, format!("{field} {problem}")).field(field, problem))
}

fn members(document: Struct, depth: usize) -> Result<Map<String, Value>, &'static str> {
    document.fields.into_iter().map(|(key, wire)| Ok((key, value(wire, depth)?))).collect()
}

fn value(wire: WireValue, depth: usize) -> Result<Value, &'static str> {
    let inside = depth.checked_sub(1).ok_or("is nested too deep")?;
    Ok(match wire.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::NumberValue(double)) => Value::Number(number(double).ok_or("has a number that is not finite")?),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::ListValue(list)) => {
            list.values.into_iter().map(|wire| value(wire, inside)).collect::<Result<_, _>>()?
        }
        Some(Kind::StructValue(document)) => Value::Object(members(document, inside)?),
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "each range fits the type it is cast to")]
fn number(double: f64) -> Option<Number> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
    if double.fract() == 0.0 && (0.0..TWO_TO_64).contains(&double) {
        return Some(Number::from(double as u64));
    }
    if double.fract() == 0.0 && (-TWO_TO_63..0.0).contains(&double) {
        return Some(Number::from(double as i64));
    }
    Number::from_f64(double)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(double: f64) -> Result<String, &'static str> {
        value(WireValue { kind: Some(Kind::NumberValue(double)) }, 1).map(|value| value.to_string())
    }

    #[test]
    fn an_integral_double_is_an_integer_wherever_it_fits() {
        for (double, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (500.0, "500"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (-9_223_372_036_854_775_808.0, "-9223372036854775808"),
            (18_446_744_073_709_549_568.0, "18446744073709549568"),
            (18_446_744_073_709_551_616.0, "1.8446744073709552e+19"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(json(double).unwrap(), text);
        }
        assert!(json(f64::NAN).is_err() && json(f64::INFINITY).is_err());
    }

    #[test]
    fn a_deep_structure_is_refused() {
        let mut wire = WireValue { kind: None };
        for _ in 0..200 {
            wire = WireValue { kind: Some(Kind::ListValue(prost_types::ListValue { values: vec![wire] })) };
        }
        let document = Struct { fields: [("a".to_owned(), wire)].into() };
        let fault = of_struct("plan", document).unwrap_err();
        assert_eq!(fault.reason(), Reason::InvalidArgument);
        assert!(fault.message().contains("plan"));
    }
}
