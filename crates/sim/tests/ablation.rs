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
        -                        50.73   89.64    8.48      84.4   317.1   15.43   15.90      0     0
        preemption               52.02   93.42    9.94      83.1   317.1   21.44   12.08      0     0
        elastic                  50.68   89.64    8.45      84.4   317.1   15.43   15.90      0     0
        remainder-deferral       50.27   88.89    8.01      84.5   317.1   13.36   11.04      0     0
        prefill-first            62.65  108.66   27.07     212.5   316.9  178.90    7.99      0     0
        warm-up                  51.49   94.81    8.02      84.0   317.1    9.89   15.79      0     0
        graph-reclaim            50.69   90.66    8.46      84.1   317.1   10.54   16.34      0     0
        contention-deferral      50.99   90.26    8.67      84.1   317.1   14.11   14.90      0     0
        piggyback                47.10   84.98    8.56     112.1   317.1   16.64   14.45      0     0
        batch-cap                51.76   92.46    8.53      81.0   317.1   15.94   16.79      0     0
        ageing                   50.73   89.64    8.48      84.4   317.1   15.43   15.90      0     0
        teams                    50.73   89.64    8.48      84.4   317.1   15.43   15.90      0     0
        spill                    50.73   89.64    8.48      84.4   317.1   15.43   15.90      0     0
        speculation              50.73   89.64    8.48      84.4   317.1   15.43   15.90      0     0
        give-back                50.73   89.64    8.48      84.4   317.1   15.43   15.90      0     0

        duet on an NPU and an iGPU
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0
        preemption               45.98   82.38    8.45     112.7   317.1   15.33   15.15      0     0
        elastic                  45.40   81.39    8.12     112.8   317.1   14.92    9.23      0     0
        remainder-deferral       45.56   80.52    8.12     112.5   317.1   13.58   15.14      0     0
        prefill-first            45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0
        warm-up                  45.08   79.96    7.66     120.4   317.1   10.12   14.08      0     0
        graph-reclaim            45.77   83.11    8.17     112.9   317.1    9.65    9.23      0     0
        contention-deferral      45.86   81.39    8.38     112.7   317.1   14.92   14.25      0     0
        piggyback                46.78   83.75    8.34     114.5   317.1   15.88   15.01      0     0
        batch-cap                45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0
        ageing                   45.57   81.17    8.28     112.9   317.1   14.92    9.23      0     0
        teams                    45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0
        spill                    45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0
        speculation              45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0
        give-back                45.58   81.17    8.28     112.8   317.1   14.92    9.23      0     0

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
        teams                   100.79  179.93   17.97     392.3   315.6   25.82   16.06      0     0
        spill                    44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        speculation              44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        give-back                44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0

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
        teams                   102.28  182.16   19.42     449.0   314.1   26.39   15.36    397     0
        spill                    44.67   80.24    8.79     133.1   317.1   14.96    5.91      0    14
        speculation              46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0
        give-back                46.01   81.30    9.89     130.9   317.1   16.42    9.70    306     0

        duet on two sets of cores, drafts whose every token is right with a chance of 0.75
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        preemption               19.21   31.78    8.39      38.1   317.6   11.41    6.07      0     0
        elastic                  18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        remainder-deferral       18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        prefill-first            18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        warm-up                  18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        graph-reclaim            18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        contention-deferral      18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        piggyback                18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        batch-cap                18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        ageing                   18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        teams                    39.76   62.87   17.95      92.5   317.0   25.82   12.13      0     0
        spill                    18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0
        speculation              44.49   80.24    8.73     129.3   317.1   15.27    6.51      0     0
        give-back                18.94   30.78    8.13      38.6   317.6   10.41    6.07      0     0

        duet on two sets of cores, experts on disk, and a third of the requests
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        preemption              112.03  189.24   46.04     215.5   107.2   21.72   24.03      0     0
        elastic                  98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        remainder-deferral       98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        prefill-first            98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        warm-up                  98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        graph-reclaim            98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        contention-deferral      98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        piggyback                98.75  159.00   40.48    3531.7    97.2   21.26   25.26      0     0
        batch-cap                98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        ageing                  100.17  155.86   41.81    3524.3    97.1   21.26   25.38      0     0
        teams                   397.39  610.70  303.82    9563.4    67.9 1028.87   18.32      0     0
        spill                    98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        speculation              98.75  159.00   40.21    3589.0    96.6   21.26   25.20      0     0
        give-back               122.15  201.50   49.38    8348.1    74.2   32.38   32.28      0     0
    "#]]
    .assert_eq(&text.join("\n"));
}
