//! `Describe`: what this broker is configured to allow. Names and places, never values.

use proto::broker::v1::{CredentialInfo, DescribeResponse, GrantInfo};

use super::Api;
use crate::policy::{Policy, sorted};

pub fn describe(api: &Api) -> DescribeResponse {
    let in_force = api.broker.in_force();
    let Policy { egress, credentials, grants, .. } = &in_force.policy;
    DescribeResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        policy_digest: in_force.digest.to_hex(),
        unrestricted: egress.unrestricted,
        allow_hosts: sorted(&egress.allow_hosts),
        credentials: credentials
            .values()
            .map(|credential| CredentialInfo {
                name: credential.name.clone(),
                kind: credential.kind.to_string(),
                source: credential.source.to_string(),
                hosts: credential.hosts.as_deref().map(sorted).unwrap_or_default(),
                owner: credential.owner.clone().unwrap_or_default(),
            })
            .collect(),
        grants: grants
            .iter()
            .map(|(tool, grant)| GrantInfo {
                tool: tool.clone(),
                credentials: sorted(&grant.credentials),
                methods: grant.methods.iter().map(ToString::to_string).collect(),
                hosts: grant.hosts.as_deref().map(sorted).unwrap_or_default(),
                max_artifact_request_bytes: grant.artifacts.max_request_bytes,
                max_artifact_response_bytes: grant.artifacts.max_response_bytes,
            })
            .collect(),
        egress_url: api.egress_url.clone(),
        live_tokens: u32::try_from(api.broker.tokens.live()).unwrap_or(u32::MAX),
    }
}
