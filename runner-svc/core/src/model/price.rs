//! What a model costs: two prices that an operator knows, and what they make of an answer's tokens.

use serde::{Deserialize, Serialize};

/// Tokens that a price is for.
const TOKENS_PRICED: u128 = 1_000_000;

/// Prices of a million tokens, in millionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Of what the model reads.
    pub input: u64,
    /// Of what it writes.
    pub output: u64,
}

/// Tokens of one call, as the model tells them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// All of them: what a budget of tokens counts. A model that tells no more than this is charged at its higher price.
    pub total: u64,
}

impl Price {
    /// What a call costs, in millionths of a US dollar, rounded up.
    pub fn of(&self, tokens: Tokens) -> u64 {
        let told = tokens.input.saturating_add(tokens.output);
        // Some models think in tokens that are neither.
        let other = tokens.total.saturating_sub(told);
        let at = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let cost = at(tokens.input, self.input)
            .saturating_add(at(tokens.output, self.output))
            .saturating_add(at(other, self.input.max(self.output)));
        u64::try_from(cost.div_ceil(TOKENS_PRICED)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_charged_by_what_it_read_and_wrote_and_rounded_up() {
        let price = Price { input: 150_000, output: 600_000 };
        assert_eq!(price.of(Tokens { input: 1000, output: 100, total: 1100 }), 210);
        assert_eq!(price.of(Tokens { input: 1, output: 0, total: 1 }), 1);
        assert_eq!(price.of(Tokens { input: 0, output: 0, total: 10 }), 6, "neither is told");
        assert_eq!(price.of(Tokens { input: 10, output: 10, total: 30 }), 14, "ten were thought");
        assert_eq!(price.of(Tokens::default()), 0);
        let most = Tokens { input: u64::MAX, output: u64::MAX, total: u64::MAX };
        assert_eq!(Price { input: u64::MAX, output: u64::MAX }.of(most), u64::MAX);
    }
}
