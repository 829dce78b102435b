//! Platform errors as faults: the one place that maps them.

use crate::platform::PlatformError as P;
use crate::wire::{Code, Fault};

/// The stable code of a platform error, with its text.
pub fn fault(error: P) -> Fault {
    let code = match &error {
        P::DisplayUnavailable(_) => Code::DisplayUnavailable,
        P::Unsupported(_) => Code::Unsupported,
        P::RegionInvalid(_) => Code::CaptureRegionInvalid,
        P::MonitorNotFound(_) => Code::DisplayNotFound,
        P::WindowNotFound(_) => Code::WindowNotFound,
        P::WindowRefused(_) => Code::WindowRefused,
        P::KeyUnknown(_) => Code::KeyUnknown,
        P::Unverifiable(_) => Code::Unverifiable,
        P::InputFailed(_) => Code::InputFailed,
        P::ClipboardEmpty(_) => Code::ClipboardEmpty,
        P::ClipboardFailed(_) => Code::ClipboardFailed,
        P::ProcessNotFound(_) => Code::ProcessNotFound,
        P::ProcessFailed(_) => Code::ProcessFailed,
        P::CaptureFailed(_) => Code::CaptureFailed,
        P::Io { .. } => Code::StorageFailed,
    };
    Fault::new(code, error.to_string())
}
