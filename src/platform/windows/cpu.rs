//! How long the host's processors have worked. The performance counters are not asked: they are
//! often broken, and absent under Wine.

use windows::Win32::Foundation::FILETIME;
use windows::Win32::System::Threading::GetSystemTimes;

use crate::platform::CpuTimes;

/// Since boot; `None` where it cannot be read.
pub fn cpu_times() -> Option<CpuTimes> {
    let (mut idle, mut kernel, mut user) = (
        FILETIME::default(),
        FILETIME::default(),
        FILETIME::default(),
    );
    // SAFETY: the three places are valid for writing for the length of the call.
    unsafe { GetSystemTimes(Some(&mut idle), Some(&mut kernel), Some(&mut user)) }.ok()?;
    // Kernel time includes idle time.
    let total = ticks(kernel).checked_add(ticks(user))?;
    Some(CpuTimes {
        busy: total.checked_sub(ticks(idle))?,
        total,
    })
}

fn ticks(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}
