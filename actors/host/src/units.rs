//! Units of the kernel's figures.

/// Bytes of a page of memory: 4096, or 16 or 64 KiB on some machines with arm64.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Ticks a second of the times in `/proc`.
pub fn clock_ticks() -> u64 {
    rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_and_not_guessed() {
        assert!(page_size() >= 4096 && page_size().is_power_of_two());
        assert!(clock_ticks() > 0);
    }
}
