//! What a child process is told of its effect.

use runner_core::pinned::Executor;

use crate::dispatch::{effect::Effect, token::Egress};

/// The variables of one effect. The broker's are there only with a grant.
pub(in crate::dispatch) fn variables(effect: &Effect, egress: Option<&Egress>) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("AREEV_TOOL_NAME", effect.tool.tool_name.clone()),
        ("AREEV_TOOL_HASH", effect.tool.definition.to_hex()),
        ("AREEV_IDEMPOTENCY_KEY", effect.idempotency_key.to_hex()),
    ];
    if let Executor::Code { digest, .. } = &effect.tool.executor {
        variables.push(("AREEV_EXECUTOR_URI", digest.to_uri()));
    }
    if let Some(egress) = egress {
        variables.push(("AREEV_EGRESS_URL", egress.url().to_owned()));
        variables.push(("AREEV_EGRESS_TOKEN", egress.expose_token().to_owned()));
    }
    variables
}
