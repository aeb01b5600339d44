//! Every mechanism is worth something: switched off, it changes a row of a table.

use duet_scheduler::Mechanism;
use duet_sim::ablation;
use expect_test::expect;

#[test]
fn every_mechanism_changes_a_row() {
    let tables = ablation::standard();
    for mechanism in Mechanism::ALL {
        assert!(tables.iter().any(|table| table.changes(mechanism)), "without {mechanism} nothing is different");
    }
    let text: Vec<String> = tables.iter().map(ToString::to_string).collect();
    expect![[r#"
        agent-xpu on an NPU and an iGPU
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        49.29   88.83    7.96      81.0   317.1    8.16   16.35      0     0
        preemption               50.48   89.74    9.11      80.3   317.1   17.09   11.50      0     0
        elastic                  49.29   88.83    7.93      81.0   317.1    8.16   16.35      0     0
        remainder-deferral       49.06   87.76    7.61      81.1   317.1    7.44   11.42      0     0
        prefill-first            69.97  139.04   34.75     216.7   316.9  189.02    6.94      0     0
        warm-up                  51.49   94.81    8.02      84.0   317.1    9.89   15.79      0     0
        graph-reclaim            49.44   89.02    8.00      81.1   317.1    9.82   16.35      0     0
        contention-deferral      49.36   88.91    8.04      80.6   317.1    8.16   16.35      0     0
        piggyback                45.69   82.44    7.95     108.3   317.1    9.87   14.45      0     0
        batch-cap                50.12   89.74    7.96      78.3   317.1    8.28   17.69      0     0
        ageing                   49.29   88.83    7.96      81.0   317.1    8.16   16.35      0     0
        teams                    49.29   88.83    7.96      81.0   317.1    8.16   16.35      0     0
        spill                    49.29   88.83    7.96      81.0   317.1    8.16   16.35      0     0

        duet on two sets of cores
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        preemption               45.13   80.73    9.29     126.7   317.1   15.27    5.76      0     0
        elastic                  44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        remainder-deferral       44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        prefill-first            44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        warm-up                  44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        graph-reclaim            44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        contention-deferral      44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        piggyback                44.46   80.24    8.72     129.8   317.1   15.27    6.51      0     0
        batch-cap                44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        ageing                   44.40   80.21    8.70     130.0   317.1   15.27    5.76      0     0
        teams                    98.95  176.33   18.12     352.1   316.0   26.55   20.17      0     0
        spill                    44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0

        duet on two sets of cores, memory for 1 200 positions
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        preemption               46.30   81.47   10.24     128.5   317.1   17.97    7.46    301     0
        elastic                  46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        remainder-deferral       46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        prefill-first            46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        warm-up                  46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        graph-reclaim            46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        contention-deferral      46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        piggyback                45.76   81.30    9.79     131.9   317.1   16.42    9.70    306     0
        batch-cap                46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        ageing                   45.76   81.30    9.80     131.9   317.1   16.42    9.70    306     0
        teams                   102.00  180.04   19.82     405.5   315.9   29.30   34.28    342     0
        spill                    44.67   80.24    8.79     133.1   317.1   14.96    5.91      0    14
    "#]]
    .assert_eq(&text.join("\n"));
}
