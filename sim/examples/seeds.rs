use leasehold_sim::{Options, Plan, run};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let minutes = args.get(2).copied().unwrap_or(3);
    for seed in args[0]..args[1] {
        let plan = Plan::draw(seed, Options { minutes, ..Options::default() });
        let began = std::time::Instant::now();
        let out = run(&plan);
        let last = out.lines.len();
        println!(
            "{seed} {:016x} {:?} ran {} s, {} lines, kinds {:?} {:?} {:?}",
            out.hash,
            began.elapsed(),
            out.ran_ms / 1000,
            last,
            plan.config.kinds,
            out.tally,
            out.violation
        );
        if std::env::var("TRACE").is_ok() {
            for l in &out.lines {
                println!("{:>9.3} {:<14} {:<38} {}", l.at_ms as f64 / 1000.0, l.who, l.to, l.what);
            }
        }
    }
}
