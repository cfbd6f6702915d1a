//! What can be shown of a run to somebody who trusts neither this process nor its disk: receipts, exports, oversight.

pub mod backup;
pub mod check;
pub mod export;
pub mod family;
mod frozen;
pub mod kept;
pub mod line;
pub mod oversight;
pub mod receipt;
pub mod reexecute;
