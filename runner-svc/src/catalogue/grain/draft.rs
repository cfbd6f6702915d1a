//! A grain in the making: typed fields first, then context, then whatever else the author said.

use std::collections::BTreeMap;

use content_digest::Digest;
use serde_json::{Map, Value};

use super::{
    BadGrain, GRAIN_BYTES_MAX, Grain, GrainType, Item, header,
    item::{in_key_order, nfc},
    names, wire,
};

/// A grain before it is sealed. Setting a field twice keeps the last.
#[derive(Debug, Clone)]
pub struct Draft {
    kind: GrainType,
    namespace: Option<String>,
    created_at_ms: i64,
    fields: BTreeMap<String, Item>,
    context: Option<Value>,
    extras: Map<String, Value>,
}

impl Draft {
    /// Begins a grain: type, namespace, time, and full confidence.
    pub fn new(kind: GrainType, namespace: Option<&str>, created_at_ms: i64) -> Self {
        let (fields, extras) = (BTreeMap::new(), Map::new());
        let mut draft =
            Self { kind, namespace: namespace.map(str::to_owned), created_at_ms, fields, context: None, extras };
        draft.set("type", Item::text(kind.name()));
        draft.set("confidence", Item::Float(1.0));
        draft.set("created_at", Item::integer(created_at_ms));
        if let Some(namespace) = namespace {
            draft.set("namespace", Item::text(namespace));
        }
        draft
    }

    /// Sets a typed field by its long name.
    pub fn set(&mut self, long: &str, item: Item) {
        self.fields.insert(names::compact(long).to_owned(), item);
    }

    /// Sets a typed text field by its long name, if there is a value.
    pub fn set_text(&mut self, long: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.set(long, Item::text(value));
        }
    }

    /// Sets the common context. On a State, whose own context has the name, it is kept apart.
    pub fn set_context(&mut self, context: Value) {
        self.context = Some(context);
    }

    /// Adds a field that the type does not know. It never replaces a field that it does.
    pub fn extra(&mut self, name: &str, value: Value) {
        self.extras.insert(name.to_owned(), value);
    }

    /// Makes the bytes and their address. Refuses what is over 16 MiB or 255 levels, and numbers that are not finite.
    pub fn seal(mut self) -> Result<Grain, BadGrain> {
        let flags = header::flags(|key| self.fields.get(key));
        if let Some(context) = self.context.take() {
            let key = if self.fields.contains_key("ctx") { "cctx" } else { "ctx" };
            let item = context.as_object().map(|members| Item::object(members, names::compact));
            self.fields.insert(key.to_owned(), item.unwrap_or_else(|| Item::of(&context)));
        }
        for (name, value) in in_key_order(&self.extras) {
            let name = nfc(name);
            if !self.fields.contains_key(&name) && !self.fields.contains_key(names::compact(&name)) {
                self.fields.insert(name, Item::of(value));
            }
        }
        let payload: Vec<_> = self.fields.into_iter().collect();
        let mut bytes = header::build(self.kind, flags, self.namespace.as_deref(), self.created_at_ms).to_vec();
        wire::encode_map(&payload, 0, &mut bytes)?;
        if bytes.len() > GRAIN_BYTES_MAX {
            return Err(BadGrain::whole(format!("the grain has {} bytes; at most {GRAIN_BYTES_MAX}", bytes.len())));
        }
        Ok(Grain { kind: self.kind, hash: Digest::of(&bytes), bytes, payload })
    }
}
