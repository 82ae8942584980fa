//! What holds whatever pods there are.

use super::*;

proptest! {
    #[test]
    fn whoever_is_admitted_fits_beside_the_others_however_they_are_listed(
        sizes in proptest::collection::vec((0_i64..6, 0_i64..8), 0..8),
        turn in 0_usize..8,
        critical in any::<bool>(),
    ) {
        let node = node();
        let mut there: Vec<Pod> = Vec::new();
        for (index, (cpu, memory)) in sizes.iter().enumerate() {
            let amounts = [("cpu", format!("{cpu}m")), ("memory", memory.to_string())];
            let amounts = [(amounts[0].0, amounts[0].1.as_str()), (amounts[1].0, amounts[1].1.as_str())];
            let last = critical && index + 1 == sizes.len();
            let pod = asking(&format!("p{index}"), &amounts)
                .spec_with(|spec| spec.priority = last.then_some(SYSTEM_CRITICAL_PRIORITY));
            let mut others: Vec<&Pod> = there.iter().collect();
            let verdict = admit(&input(&pod, &others, &node));
            if !others.is_empty() {
                let middle = turn % others.len();
                others.rotate_left(middle);
            }
            prop_assert_eq!(&admit(&input(&pod, &others, &node)), &verdict);
            match verdict {
                AdmissionDecision::Admit(_) => there.push(pod),
                AdmissionDecision::Preempt { victims, .. } => {
                    prop_assert!(there.iter().all(|p| !victims.contains(&p.uid()) || !p.is_critical()));
                    there.retain(|p| !victims.contains(&p.uid()));
                    there.push(pod);
                }
                AdmissionDecision::Reject(_)
                | AdmissionDecision::Ask(_)
                | AdmissionDecision::Defer { .. } => {}
            }
            for (name, most) in [("cpu", 10), ("memory", 20)] {
                let sum: i64 = there.iter().map(|pod| requests::request(pod, name)).sum();
                prop_assert!(sum <= most);
            }
        }
    }
}
