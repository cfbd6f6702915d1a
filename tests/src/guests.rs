//! The guests of the tests, from text to module. `guests/*.wat` says what each does.

pub mod built;

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use content_digest::Digest;
use serde_json::Value;

use crate::binaries::workspace;

/// Bytes of a page of linear memory.
const PAGE_BYTES: usize = 65536;
/// Where `big.wat` begins its output.
const BIG_START: usize = 1024;

/// The languages of the reference guests.
pub const LANGUAGES: [&str; 4] = ["rust", "c", "zig", "assemblyscript"];

/// A reference guest as it was built: `echo`, `transform` or `fetch` in one of the languages.
pub fn reference(language: &str, tool: &str) -> Result<Vec<u8>> {
    let path = workspace().join("tests/guests/wasm").join(language).join(format!("{tool}.wasm"));
    std::fs::read(&path).with_context(|| format!("{}: build it with tests/guests/build", path.display()))
}

/// Emits its input.
pub fn echo() -> Vec<u8> {
    compile(include_str!("../guests/echo.wat"), &[])
}

/// Adds up the integers behind `"cents":`.
pub fn sum() -> Vec<u8> {
    compile(include_str!("../guests/sum.wat"), &[])
}

/// Posts `total_cents` to `<origin>/payments` with the credential `bank`.
pub fn pay(origin: &str) -> Vec<u8> {
    compile(include_str!("../guests/pay.wat"), &[("ORIGIN", origin)])
}

/// Makes one outbound call and emits the answer.
pub fn fetch(request: &Value) -> Vec<u8> {
    let text = request.to_string();
    let length = text.len().to_string();
    compile(include_str!("../guests/fetch.wat"), &[("REQUEST", &escaped(&text)), ("LENGTH", &length)])
}

/// Makes one outbound call whose body is the first blob that its input names, and emits the answer.
pub fn give(request: &Value) -> Vec<u8> {
    let nothing = Digest::ZERO.to_uri();
    let mut request = request.clone();
    request["body_ref"] = nothing.as_str().into();
    let text = request.to_string();
    let at = 1024 + text.find(&nothing).expect("it was put there");
    let (place, length) = (at.to_string(), text.len().to_string());
    let parts = [("REQUEST", escaped(&text)), ("PLACE", place), ("LENGTH", length)];
    compile(include_str!("../guests/give.wat"), &parts.each_ref().map(|(name, text)| (*name, text.as_str())))
}

/// Makes outbound calls one after the other, at most 12 of at most 1 KiB, and emits the last answer. Traps without an answer.
pub fn fetches(requests: &[Value]) -> Vec<u8> {
    let (mut texts, mut calls) = (String::new(), String::new());
    for (place, request) in requests.iter().enumerate() {
        let (at, text) = (1024 * (place + 1), request.to_string());
        texts.push_str(&format!("(data (i32.const {at}) \"{}\")\n", escaped(&text)));
        let call = format!("(call $call (i32.const {at}) (i32.const {}))", text.len());
        calls.push_str(&format!("(local.set $reply {call})\n"));
    }
    compile(include_str!("../guests/fetches.wat"), &[("REQUESTS", &texts), ("CALLS", &calls)])
}

/// A text as the text format of modules spells it.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        write!(escaped, "\\{byte:02x}").expect("a string takes what is written");
    }
    escaped
}

/// Never returns.
pub fn spin() -> Vec<u8> {
    compile(include_str!("../guests/spin.wat"), &[])
}

/// Traps.
pub fn trap() -> Vec<u8> {
    compile(include_str!("../guests/trap.wat"), &[])
}

/// Takes all the memory that it gets.
pub fn grow() -> Vec<u8> {
    compile(include_str!("../guests/grow.wat"), &[])
}

/// Emits nothing.
pub fn silent() -> Vec<u8> {
    compile(include_str!("../guests/silent.wat"), &[])
}

/// Emits text that is not JSON.
pub fn not_json() -> Vec<u8> {
    compile(include_str!("../guests/not_json.wat"), &[])
}

/// Emits a JSON string of so many bytes, quotes included.
pub fn big(bytes: usize) -> Vec<u8> {
    let end = BIG_START + bytes;
    let pages = (end + 8).div_ceil(PAGE_BYTES).to_string();
    let (end, last, bytes) = (end.to_string(), (end - 1).to_string(), bytes.to_string());
    let values = [("PAGES", &*pages), ("END", &end), ("LAST", &last), ("BYTES", &bytes)];
    compile(include_str!("../guests/big.wat"), &values)
}

/// Imports a function of WASI.
pub fn wasi() -> Vec<u8> {
    compile(include_str!("../guests/wasi.wat"), &[])
}

fn compile(source: &str, values: &[(&str, &str)]) -> Vec<u8> {
    // Line comments go first: they name the placeholders too.
    let code = source.lines().filter(|line| !line.trim_start().starts_with(";;")).collect::<Vec<_>>().join("\n");
    let text = values.iter().fold(code, |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value));
    wat::parse_str(&text).unwrap_or_else(|cause| panic!("a guest does not compile: {cause}\n{text}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_guest_compiles() {
        for module in [
            super::echo(),
            super::sum(),
            super::pay("http://127.0.0.1:1"),
            super::fetch(&serde_json::json!({"url": "http://127.0.0.1:1/\"quoted\""})),
            super::fetches(&[serde_json::json!({"url": "http://127.0.0.1:1/"}), serde_json::json!({})]),
            super::spin(),
            super::trap(),
            super::grow(),
            super::silent(),
            super::not_json(),
            super::big(100_000),
            super::wasi(),
        ] {
            assert!(module.starts_with(b"\0asm"), "no module");
        }
    }
}
