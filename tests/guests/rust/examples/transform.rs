//! Adds up the cents of an invoice's lines.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use areev_guest::Error;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Invoice {
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    cents: u64,
}

#[derive(Serialize)]
struct Total {
    total_cents: u64,
    lines: usize,
}

areev_guest::tool!(total);

fn total(invoice: Invoice) -> Result<Total, Error> {
    Ok(Total { total_cents: invoice.lines.iter().map(|line| line.cents).sum(), lines: invoice.lines.len() })
}
