//! The catalogue as resolution sees it: one namespace, read only.

use content_digest::Digest;
use runner_core::{
    refusal::{Refusal, RefusalCode},
    resolve,
};
use serde_json::Value;

use super::{Catalogue, CatalogueError};

/// A catalogue, and the namespace in which names are looked up. Calls block on the disk.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    catalogue: &'a Catalogue,
    namespace: &'a str,
}

impl Catalogue {
    /// A plan's fields by long names, or the refusal of a hash that names no plan.
    pub fn plan_fields(&self, hash: &Digest) -> Result<Result<Value, Refusal>, CatalogueError> {
        Ok(match self.grain(hash)? {
            Some(grain) if grain.is_plan() => Ok(Value::Object(grain.fields())),
            Some(grain) => {
                let text = format!("{hash} is a grain of type {}: name a plan", grain.kind().name());
                Err(Refusal::new(RefusalCode::BadPlan, text))
            }
            None => {
                let text = format!("there is no plan {hash}: store it with PutPlan");
                Err(Refusal::new(RefusalCode::Unresolved, text))
            }
        })
    }

    /// The catalogue as a plan of this namespace sees it.
    pub fn lookup<'a>(&'a self, namespace: &'a str) -> Lookup<'a> {
        Lookup { catalogue: self, namespace }
    }
}

impl resolve::Catalogue for Lookup<'_> {
    type Error = CatalogueError;

    fn grain(&self, hash: &Digest) -> Result<Option<resolve::Grain>, CatalogueError> {
        let grain = self.catalogue.grain(hash)?;
        Ok(grain.map(|grain| resolve::Grain {
            grain_type: grain.kind().name().to_owned(),
            fields: Value::Object(grain.fields()),
        }))
    }

    fn newest_definition(&self, tool_name: &str) -> Result<Option<Digest>, CatalogueError> {
        self.catalogue.newest_definition(self.namespace, tool_name)
    }

    fn has_blob(&self, digest: &Digest) -> Result<bool, CatalogueError> {
        Ok(self.catalogue.blobs().size(digest)?.is_some())
    }
}
