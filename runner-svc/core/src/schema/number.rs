//! Numbers of JSON, compared by value: integers of 64 bits exactly, decimals as they are written.

use std::cmp::Ordering;

use serde_json::Number;

/// Decimal places by which two numbers may differ in scale to be divided exactly.
const SCALE_MAX: u32 = 20;

/// How a number lies to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Below,
    Same,
    Above,
}

/// A decimal: digits × 10^exponent.
#[derive(Debug, Clone, Copy)]
struct Decimal {
    digits: i128,
    exponent: i32,
}

/// How `left` lies to `right`.
pub(super) fn order(left: &Number, right: &Number) -> Order {
    let compared = match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => float(left).partial_cmp(&float(right)).unwrap_or(Ordering::Equal),
    };
    match compared {
        Ordering::Less => Order::Below,
        Ordering::Equal => Order::Same,
        Ordering::Greater => Order::Above,
    }
}

/// Whether it is whole: `1.0` is.
pub(super) fn is_integer(number: &Number) -> bool {
    integer(number).is_some() || float(number).fract() == 0.0
}

/// Whether a whole number of units makes the number: `0.3` is three times `0.1`.
pub(super) fn is_multiple(number: &Number, unit: &Number) -> bool {
    let exact = || {
        let (number, unit) = (Decimal::read(number)?, Decimal::read(unit)?);
        let exponent = number.exponent.min(unit.exponent);
        Some(number.scaled(exponent)?.checked_rem(unit.scaled(exponent)?)? == 0)
    };
    // Scales too far apart for exact digits: as floats divide.
    exact().unwrap_or_else(|| (float(number) / float(unit)).fract() == 0.0)
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

impl Decimal {
    /// From the shortest text of the number.
    fn read(number: &Number) -> Option<Self> {
        let text = number.to_string();
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text.as_str(), 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, exponent: exponent.checked_sub(i32::try_from(fraction.len()).ok()?)? })
    }

    /// Its digits at a smaller exponent.
    fn scaled(self, exponent: i32) -> Option<i128> {
        let places = u32::try_from(self.exponent.checked_sub(exponent)?).ok().filter(|places| *places <= SCALE_MAX)?;
        self.digits.checked_mul(10_i128.checked_pow(places)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn integers_of_64_bits_are_compared_exactly() {
        assert_eq!(order(&number("9007199254740993"), &number("9007199254740992")), Order::Above);
        assert_eq!(order(&number("18446744073709551615"), &number("-1")), Order::Above);
        assert_eq!(order(&number("1.0"), &number("1")), Order::Same);
        assert_eq!(order(&number("-1e300"), &number("-9223372036854775808")), Order::Below);
    }

    #[test]
    fn multiples_are_those_of_the_digits_as_written() {
        for (of, unit) in [("0.3", "0.1"), ("19.99", "0.01"), ("9007199254740993", "3"), ("1e300", "2"), ("-4", "2.0")]
        {
            assert!(is_multiple(&number(of), &number(unit)), "{of} of {unit}");
        }
        for (of, unit) in [("0.35", "0.1"), ("9007199254740993", "2"), ("1", "1e300")] {
            assert!(!is_multiple(&number(of), &number(unit)), "{of} of {unit}");
        }
    }
}
