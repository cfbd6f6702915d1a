//! `StatModules`: what is here, and the record of each digest's calls.

use content_digest::Digest;
use proto::sandbox::v1::{LastExecution, ModuleStat, StatModulesRequest, StatModulesResponse};

use super::wire;
use crate::{error::Refusal, executions::Execution, sandbox::Sandbox};

/// Digests of one request.
const DIGESTS_MAX: usize = 256;

/// One answer per digest, in the order asked.
pub fn stat_modules(sandbox: &Sandbox, request: &StatModulesRequest) -> Result<StatModulesResponse, Refusal> {
    if request.digests.len() > DIGESTS_MAX {
        let text = format!("{} digests; ask for at most {DIGESTS_MAX}", request.digests.len());
        return Err(Refusal::Field { field: "digests", text });
    }
    let modules = request.digests.iter().map(|text| wire::digest("digests", text).map(|digest| stat(sandbox, digest)));
    Ok(StatModulesResponse { modules: modules.collect::<Result<_, _>>()? })
}

fn stat(sandbox: &Sandbox, digest: Digest) -> ModuleStat {
    let stat = sandbox.modules.stat(&digest);
    let executed = sandbox.executions.of(&digest);
    ModuleStat {
        digest: digest.to_uri(),
        present: stat.present,
        size_bytes: stat.size_bytes.unwrap_or(0),
        compiled: stat.compiled,
        executions: executed.as_ref().map_or(0, |executed| executed.count),
        last_execution: executed.map(|executed| last(executed.last)),
    }
}

fn last(execution: Execution) -> LastExecution {
    LastExecution {
        runtime: wire::runtime_out(execution.runtime) as i32,
        limits: Some(wire::limits(&execution.limits)),
        fetch_linked: execution.fetch_linked,
        kind: wire::kind(execution.failure) as i32,
        effect: Some(wire::effect_key_out(execution.key)),
    }
}
