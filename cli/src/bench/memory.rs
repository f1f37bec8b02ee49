//! What this process needs, as the kernel says.

/// The most memory that was resident at once so far, in bytes (`VmHWM`, proc(5)); `None` where there is no such thing.
#[must_use]
pub fn peak_bytes() -> Option<u64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_where_the_kernel_tells_it() {
        assert_eq!(peak_of("Name:\tleasehold\nVmHWM:\t    2048 kB\nVmRSS:\t  1024 kB\n"), Some(2_097_152));
        assert_eq!(peak_of("Name:\tleasehold\n"), None);
    }
}
