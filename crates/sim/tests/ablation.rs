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
        -                        49.98   88.83    7.92      83.9   317.1    8.62   15.90      0     0
        preemption               51.32   92.42    9.29      82.4   317.1   19.21   11.49      0     0
        elastic                  49.96   88.83    7.88      83.9   317.1    8.62   15.90      0     0
        remainder-deferral       49.65   88.32    7.49      84.0   317.1    8.14   11.41      0     0
        prefill-first            76.67  159.77   41.44     252.0   316.9  225.45    7.36      0     0
        warm-up                  51.49   94.81    8.02      84.0   317.1    9.89   15.79      0     0
        graph-reclaim            50.09   89.91    7.94      84.2   317.1   10.54   16.34      0     0
        contention-deferral      50.15   89.74    8.05      83.6   317.1    7.16   14.90      0     0
        piggyback                46.41   84.04    8.00     111.1   317.1    9.91   14.45      0     0
        batch-cap                50.96   91.75    7.93      80.6   317.1    8.74   16.79      0     0
        ageing                   49.98   88.83    7.92      83.9   317.1    8.62   15.90      0     0
        teams                    49.98   88.83    7.92      83.9   317.1    8.62   15.90      0     0
        spill                    49.98   88.83    7.92      83.9   317.1    8.62   15.90      0     0
        speculation              49.98   88.83    7.92      83.9   317.1    8.62   15.90      0     0
        give-back                49.98   88.83    7.92      83.9   317.1    8.62   15.90      0     0

        duet on an NPU and an iGPU
        without               reactive     p90    ttft proactive   tok/s preempt   stall spills again
        -                        44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0
        preemption               45.33   82.06    7.92     111.9   317.1    8.38   10.90      0     0
        elastic                  44.90   79.22    7.64     112.5   317.1    7.97    9.23      0     0
        remainder-deferral       44.94   79.55    7.51     112.3   317.1    6.75   14.90      0     0
        prefill-first            44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0
        warm-up                  45.11   81.49    7.68     120.4   317.1   10.12   14.08      0     0
        graph-reclaim            45.33   81.74    7.76     112.8   317.1    9.65    9.27      0     0
        contention-deferral      44.92   79.43    7.68     112.3   317.1    7.97    9.23      0     0
        piggyback                46.03   83.04    7.76     113.2   317.1    9.51   10.57      0     0
        batch-cap                44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0
        ageing                   44.92   79.22    7.72     112.5   317.1    7.97    9.23      0     0
        teams                    44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0
        spill                    44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0
        speculation              44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0
        give-back                44.96   79.22    7.72     112.4   317.1    7.97    9.23      0     0

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
        teams                   100.74  179.93   17.97     391.9   315.7   25.82   15.28      0     0
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
        teams                   102.61  178.27   19.44     449.4   314.3   26.39   15.36    396     0
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
        -                        98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        preemption              112.03  189.24   46.04     215.5   107.2   21.72   24.03      0     0
        elastic                  98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        remainder-deferral       98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        prefill-first            98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        warm-up                  98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        graph-reclaim            98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        contention-deferral      98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        piggyback                98.75  159.00   40.60    3536.2    97.2   21.26   25.26      0     0
        batch-cap                98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        ageing                  100.17  155.86   41.81    3524.3    97.1   21.26   25.38      0     0
        teams                   432.39  828.88  337.69    9457.8    67.9 1113.58   17.30      0     0
        spill                    98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        speculation              98.78  159.00   40.37    3601.3    96.6   21.26   25.20      0     0
        give-back               122.15  201.50   49.38    8348.1    74.2   32.38   32.28      0     0
    "#]]
    .assert_eq(&text.join("\n"));
}
