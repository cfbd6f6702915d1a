//! What the three RPCs that store a grain have in common.

use prost_types::Struct;
use proto::fault::{Fault, Reason};
use serde_json::{Map, Value};

use super::{CatalogApi, failure};
use crate::{
    access::{Permission, Principal},
    api::document,
    catalogue::grain::Grain,
};

/// Largest authored document, in bytes of its text.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// A document in one of its two forms; `names` are the fields that carry them.
pub enum Form {
    /// A structure.
    Structure(Struct),
    /// JSON text.
    Text(String),
}

/// A document's members. What is no JSON breaks the grain format too.
pub fn members(form: Option<Form>, names: (&str, &str)) -> Result<Map<String, Value>, Fault> {
    match form {
        Some(Form::Structure(structure)) => document::of_struct(names.0, structure),
        Some(Form::Text(text)) if text.len() > DOCUMENT_BYTES_MAX => {
            Err(failure::invalid(names.1, &format!("must have at most {DOCUMENT_BYTES_MAX} bytes")))
        }
        Some(Form::Text(text)) => document::of_text(names.1, &text),
        None => Err(failure::invalid(names.1, &format!("or {} is required: the document", names.0))),
    }
}

/// The namespace that a document is authored in: its own member, else the request's.
pub fn namespace(members: &Map<String, Value>, asked: &str) -> Result<String, Fault> {
    let namespace = match members.get("namespace") {
        Some(own) => own.as_str().unwrap_or_default(),
        None => asked,
    };
    if namespace.is_empty() {
        let text = "no namespace: name it in the request or as text in the document";
        return Err(Fault::new(Reason::InvalidArgument, text).field("namespace", "is required"));
    }
    Ok(namespace.to_owned())
}

/// Stores a grain that the caller may write; answers when it is on disk.
pub async fn store(api: &CatalogApi, principal: &Principal, grain: Grain) -> Result<(), Fault> {
    api.parts.access.allow(principal, grain.namespace(), Permission::CatalogWrite)?;
    let (hash, kind, namespace) = (grain.hash(), grain.kind().name(), grain.namespace().to_owned());
    api.on_disk(move |catalogue| catalogue.put_grain(&grain)).await?;
    tracing::info!(%principal, %hash, kind, namespace, "grain stored");
    Ok(())
}
