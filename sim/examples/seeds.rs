use leasehold_sim::{Options, Plan, run};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let n = |i: usize, d: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(d);
    let has = |w: &str| args.iter().any(|a| a == w);
    let mut options = Options { minutes: n(2, 3), beyond: has("beyond"), ..Options::default() };
    if has("deadline") {
        options.rules.local_deadline = false;
    }
    if has("fence") {
        options.rules.fence = false;
    }
    if has("mine") {
        options.rules.epoch_conditions = false;
    }
    for seed in n(0, 0)..n(1, 1) {
        let plan = Plan::draw(seed, options);
        let began = std::time::Instant::now();
        let out = run(&plan);
        println!(
            "{seed} {:016x} {:?} ran {} s, {} lines {:?}",
            out.hash,
            began.elapsed(),
            out.ran_ms / 1000,
            out.lines.len(),
            out.violation
        );
        if has("trace") {
            println!("{:?}", plan.config);
            for s in &plan.steps {
                println!("{s}");
            }
            println!("{:?}", out.tally);
            for l in &out.lines {
                println!("{:>9.3} {:<14} {:<38} {}", l.at_ms as f64 / 1000.0, l.who, l.to, l.what);
            }
        }
    }
}
