//! Modules that pass the look before compiling, and are made to take a compiler long.

use std::fmt::Write as _;

use crate::guests;

const ECHO: &str = "(call $emit (local.get $p) (local.get $n))";

/// All of them, by name. Each is a few hundred kilobytes at most.
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("thousands of functions", functions(19_000)),
        ("thousands of functions with locals", wide_functions()),
        ("bodies of the greatest size", hungry()),
        ("many locals, all live", locals()),
        ("a huge br_table in each function", tables()),
        ("deep nesting", nested()),
    ]
}

/// Functions of a few bytes each.
pub fn functions(count: usize) -> String {
    let mut more = String::new();
    for number in 0..count {
        let _infallible = write!(more, "(func (result i32) (i32.mul (i32.const {number}) (i32.const 3)))");
    }
    guests::guest("", &more, ECHO)
}

/// Bodies of nearly 64 KiB, each one long chain of blocks over live values.
pub fn hungry() -> String {
    let mut body = String::new();
    for number in 0..5_000 {
        let (a, b) = (number % 40, (number * 7 + 3) % 40);
        let _infallible =
            write!(body, "(if (local.get {a}) (then (local.set {b} (i32.add (local.get {a}) (local.get {b})))))");
    }
    guests::guest("", &format!("(func {} {body})", "(local i32)".repeat(40)).repeat(6), ECHO)
}

fn wide_functions() -> String {
    let function = format!("(func {})", "(local i32 i64 f32 f64)".repeat(2));
    guests::guest("", &function.repeat(15_000), ECHO)
}

fn locals() -> String {
    let mut body = String::new();
    for number in 0..3_000 {
        let _infallible = write!(body, "(local.set {number} (i32.load (i32.const {})))", number * 4);
    }
    for number in 0..3_000 {
        let _infallible = write!(body, "(i32.store (i32.const {}) (local.get {number}))", number * 4);
    }
    guests::guest("", &format!("(func {} (loop $l {body} (br $l)))", "(local i32)".repeat(3_000)).repeat(6), ECHO)
}

fn tables() -> String {
    let targets: String = (0..4_000).map(|number| format!("{} ", number % 30)).collect();
    let (open, close) = ("(block ".repeat(30), ")".repeat(30));
    guests::guest("", &format!("(func (param i32) {open} (br_table {targets} (local.get 0)) {close})").repeat(24), ECHO)
}

fn nested() -> String {
    let (open, close) = ("(block (loop ".repeat(900), "))".repeat(900));
    let mut body = String::new();
    for number in 0..8_000 {
        let _infallible = write!(body, "(br_if {} (local.get 0))", number % 1_700);
    }
    guests::guest("", &format!("(func (param i32) {open} {body} {close})").repeat(6), ECHO)
}
