//! Lanes and teams: every rank runs, results are visible, panics and drops end cleanly.

use duet_device::{Cpu, CpuConfig, CpuLanes, LanesStopped, Pinning};
use duet_kernels::crew::Crew;
use duet_types::{LaneId, LaneSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

fn cpu(lanes: &[usize]) -> Cpu {
    Cpu::start(&CpuConfig { lanes: lanes.to_vec(), pinning: Pinning::Floating }).unwrap()
}

/// Runs `job` on `lanes` and waits for what it returns.
fn on<T: Send + 'static>(cpu: &Cpu, lanes: LaneSet, job: impl FnOnce(&dyn Crew) -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    cpu.lanes().launch(lanes, Box::new(move |crew| sender.send(job(crew)).unwrap())).unwrap();
    receiver.recv().expect("the job ran to its end")
}

#[test]
fn every_rank_of_a_team_is_called_once_and_rank_0_is_the_job_s_thread() {
    let cpu = cpu(&[2, 1]);
    let ranks = on(&cpu, LaneSet::first(2), |crew| {
        let job_thread = std::thread::current().id();
        let ranks = Mutex::new(Vec::new());
        crew.run(&|worker| {
            assert_eq!(worker.size(), 3);
            assert_eq!(worker.rank() == 0, std::thread::current().id() == job_thread);
            ranks.lock().unwrap().push(worker.rank());
        });
        let mut ranks = ranks.into_inner().unwrap();
        ranks.sort_unstable();
        ranks
    });
    assert_eq!(ranks, [0, 1, 2]);
}

#[test]
fn a_team_has_the_threads_of_its_lanes_only() {
    let cpu = cpu(&[2, 1, 1]);
    assert_eq!(cpu.threads(), 4);
    let size = |lanes: &[u8]| {
        let lanes = lanes.iter().copied().map(LaneId).collect();
        on(&cpu, lanes, |crew| {
            let called = AtomicUsize::new(0);
            crew.run(&|_| {
                called.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(called.into_inner(), crew.size());
            crew.size()
        })
    };
    assert_eq!(size(&[0]), 2);
    assert_eq!(size(&[1]), 1);
    assert_eq!(size(&[1, 2]), 2);
    assert_eq!(size(&[0, 1, 2]), 4);
}

#[test]
fn what_members_wrote_is_visible_after_the_run_and_after_a_sync() {
    let cpu = cpu(&[2, 2]);
    let total = on(&cpu, LaneSet::first(2), |crew| {
        let parts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        let mut total = 0;
        for round in 1..=2_000 {
            crew.run(&|worker| {
                parts[worker.rank()].store(round, Ordering::Relaxed);
                worker.sync();
                assert!(parts.iter().all(|part| part.load(Ordering::Relaxed) == round));
            });
            total += parts.iter().map(|part| part.load(Ordering::Relaxed)).sum::<usize>();
        }
        total
    });
    assert_eq!(total, 4 * 2_000 * 2_001 / 2);
}

#[test]
fn a_parked_member_is_woken() {
    let cpu = cpu(&[1, 1]);
    for _ in 0..20 {
        let called = on(&cpu, LaneSet::first(2), |crew| {
            let called = AtomicUsize::new(0);
            // Longer than members spin, on this job's own thread: the member has parked when the round is published.
            let parked = std::time::Instant::now();
            while parked.elapsed().as_micros() < 300 {
                std::hint::spin_loop();
            }
            crew.run(&|_| {
                called.fetch_add(1, Ordering::Relaxed);
            });
            called.into_inner()
        });
        assert_eq!(called, 2);
    }
}

#[test]
fn jobs_of_one_lane_run_in_order_and_may_launch_more() {
    fn count_down(lanes: &CpuLanes, from: usize, seen: mpsc::Sender<usize>) {
        let next = lanes.clone();
        let job = Box::new(move |_: &dyn Crew| {
            seen.send(from).unwrap();
            if from > 0 {
                count_down(&next, from - 1, seen);
            }
        });
        lanes.launch(LaneSet::first(1), job).unwrap();
    }
    let (sender, receiver) = mpsc::channel();
    let cpu = cpu(&[1]);
    count_down(&cpu.lanes(), 5, sender);
    // Dropping the device carries through what has begun.
    drop(cpu);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
}

#[test]
fn disjoint_teams_run_side_by_side() {
    let cpu = cpu(&[1, 1]);
    let meeting = Arc::new(std::sync::Barrier::new(3));
    for lane in [0, 1] {
        let meeting = Arc::clone(&meeting);
        let job = Box::new(move |_: &dyn Crew| {
            meeting.wait();
        });
        cpu.lanes().launch(LaneSet::from_iter([LaneId(lane)]), job).unwrap();
    }
    // Returns only if both lanes are in their jobs at once.
    meeting.wait();
}

#[test]
fn a_panic_of_any_rank_comes_out_of_run_and_the_team_goes_on() {
    let cpu = cpu(&[1, 1, 1]);
    for failing in 0..3 {
        let message = on(&cpu, LaneSet::first(3), move |crew| {
            let call = std::panic::AssertUnwindSafe(|| {
                crew.run(&|worker| {
                    worker.sync();
                    assert!(worker.rank() != failing, "rank {failing} fails");
                    // The others wait here for one who will never come.
                    worker.sync();
                });
            });
            let panic = std::panic::catch_unwind(call).expect_err("one rank panicked");
            // The same team still meets, and only when all have come.
            let come = AtomicUsize::new(0);
            crew.run(&|worker| {
                come.fetch_add(1, Ordering::Relaxed);
                worker.sync();
                assert_eq!(come.load(Ordering::Relaxed), 3);
            });
            *panic.downcast::<String>().expect("the first panic, not its echo")
        });
        assert_eq!(message, format!("rank {failing} fails"));
        assert_eq!(on(&cpu, LaneSet::first(3), |crew| crew.size()), 3);
    }
}

#[test]
fn every_call_deals_everything_out_once_whether_or_not_its_ranks_meet() {
    let cpu = cpu(&[1, 1]);
    on(&cpu, LaneSet::first(2), |crew| {
        for call in 0..300 {
            let counts: Vec<AtomicUsize> = (0..40).map(|_| AtomicUsize::new(0)).collect();
            crew.run(&|worker| {
                let deal_out = || {
                    worker.pieces(counts.len(), 2).flatten().for_each(|thing| {
                        counts[thing].fetch_add(1, Ordering::Relaxed);
                    })
                };
                deal_out();
                if call % 3 == 0 {
                    worker.sync();
                    deal_out();
                }
            });
            let times = if call % 3 == 0 { 2 } else { 1 };
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == times), "call {call}");
        }
    });
}

#[test]
fn a_panicking_job_leaves_its_lane_usable() {
    let cpu = cpu(&[1]);
    cpu.lanes().launch(LaneSet::first(1), Box::new(|_| panic!("a job fails"))).unwrap();
    assert_eq!(on(&cpu, LaneSet::first(1), |_| 7), 7);
}

#[test]
fn a_stopped_device_refuses_jobs() {
    let cpu = cpu(&[1, 1]);
    let lanes = cpu.lanes();
    drop(cpu);
    assert_eq!(lanes.launch(LaneSet::first(1), Box::new(|_| ())), Err(LanesStopped));
}

#[test]
fn threads_divide_into_a_prefill_and_a_decode_lane() {
    assert_eq!(CpuConfig::prefill_and_decode(1).lanes, [1]);
    assert_eq!(CpuConfig::prefill_and_decode(2).lanes, [1, 1]);
    assert_eq!(CpuConfig::prefill_and_decode(5).lanes, [3, 2]);
}

/// CPU time that a set of threads used is read from the system, so this needs no guess about the machine's speed.
#[cfg(target_os = "linux")]
#[test]
fn idle_lanes_use_no_cpu() {
    fn ticks() -> u64 {
        let mut ticks = 0;
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else { continue };
            if !name.starts_with("duet-idle") {
                continue;
            }
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
        ticks
    }
    let cpu = cpu(&[1, 1]);
    let name = |lane: u8| {
        on(&cpu, LaneSet::from_iter([LaneId(lane)]), move |_| {
            let name = format!("duet-idle-{lane}");
            std::fs::write("/proc/thread-self/comm", name).unwrap();
        });
    };
    name(0);
    name(1);
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_millis(300));
    // 300 ms of spinning would be 30 ticks a lane.
    assert!(ticks() - before <= 2, "idle lanes used {} ticks", ticks() - before);
}
