//! A run's events, one short line each.

use proto::runner::v1::Event;
use serde_json::Value;

/// Width of the event's kind.
const KIND: usize = 17;

/// What an event says, and at what time since the run's start in milliseconds.
pub fn line(event: &Event, started: &Event) -> (String, String) {
    let time = format!("{:>6} ms", since(event, started));
    let body: Value = serde_json::from_str(&event.body_json).unwrap_or_default();
    (time, format!("{:KIND$} {}", event.kind, what(&event.kind, &body)).trim_end().to_owned())
}

fn what(kind: &str, body: &Value) -> String {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    match kind {
        "RunStarted" => "the manifest is durable: definitions, digests, limits and capabilities are frozen".to_owned(),
        "SuperstepOpened" | "SuperstepClosed" => format!("superstep {}", body["superstep"]),
        // A pure module may run before its intent is on disk: running it again changes nothing.
        "IntentRecorded" if text("class") == "pure" => format!("{}  (pure)", text("node")),
        "IntentRecorded" => format!("{}  ({}: on disk before it is sent)", text("node"), text("class")),
        "ExchangeRecorded" => {
            format!("{}  one call through the broker, on disk before the module sees the answer", text("node"))
        }
        "ResultRecorded" => {
            let fuel = body["usage"]["fuel"].as_u64().map_or_else(String::new, |fuel| format!(", {fuel} fuel"));
            format!("{}  {}{fuel}", text("node"), body["outcome"]["status"].as_str().unwrap_or("settled"))
        }
        "AskRaised" => format!("{}  waits for a person", text("node")),
        "AskAnswered" => format!("{}  by {}", text("node"), text("by")),
        "AskRejected" => format!("{}  by {}: {}", text("node"), text("by"), text("reason")),
        "RunFinished" => body["outcome"]["status"].as_str().unwrap_or_default().to_owned(),
        _ => text("node"),
    }
}

fn since(event: &Event, started: &Event) -> i64 {
    let millis = |event: &Event| event.at.map_or(0, |at| at.seconds * 1000 + i64::from(at.nanos) / 1_000_000);
    (millis(event) - millis(started)).max(0)
}
