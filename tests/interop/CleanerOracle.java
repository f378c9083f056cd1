import java.io.File;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Scanner;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own cleaner. A line of standard input has words between tabs: a partition directory after a clean stop, the time in
 * ms, the checkpointed offset or -1, the memory for the offsets of keys in bytes, topic configurations as key=value, and times
 * to search for. The log is cleaned in place if its dirty ratio is above 0. The answer has the first dirty offset, the first
 * offset that may not be cleaned, the offset up to which the log is clean or -1, and the log end offset; then for each time the
 * offset of the first record with this time or a later one, or -1. In place of an offset, -2 says that a record was too large.
 */
public class CleanerOracle {
    record Fixed(long ms) implements Time {
        public long milliseconds() { return ms; }
        public long nanoseconds() { return ms * 1_000_000; }
        public void sleep(long ignored) { }
        public void waitObject(Object o, java.util.function.Supplier<Boolean> done, long deadline) { }
    }

    static long[] cleanableOffsets(UnifiedLog log, Optional<Long> checkpoint, long now) throws Exception {
        Method method = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        method.setAccessible(true);
        Object found = method.invoke(null, log, checkpoint, now);
        long[] offsets = new long[2];
        int at = 0;
        for (String name : new String[] {"firstDirtyOffset", "firstUncleanableDirtyOffset"}) {
            Method field = found.getClass().getDeclaredMethod(name);
            field.setAccessible(true);
            offsets[at++] = (Long) field.invoke(found);
        }
        return offsets;
    }

    static long offsetOf(UnifiedLog log, long time) {
        try {
            var found = log.fetchOffsetByTimestamp(time, Optional.empty()).timestampAndOffsetOpt();
            return found.isPresent() ? found.get().offset : -1;
        } catch (InvalidRecordException tooLarge) {
            return -2;
        }
    }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t");
            Time time = new Fixed(Long.parseLong(words[1]));
            long checkpoint = Long.parseLong(words[2]);
            Properties topic = new Properties();
            List<Long> times = new ArrayList<>();
            for (int at = 4; at < words.length; at++) {
                String[] pair = words[at].split("=");
                if (pair.length == 1)
                    times.add(Long.parseLong(words[at]));
                else
                    topic.put(pair[0], pair[1]);
            }
            UnifiedLog log = UnifiedLog.create(
                new File(words[0]), new LogConfig(topic), 0, 0, scheduler, new BrokerTopicStats(), time, 900_000,
                new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            long[] found = cleanableOffsets(log, checkpoint < 0 ? Optional.empty() : Optional.of(checkpoint), time.milliseconds());
            LogToClean dirty = new LogToClean(log, found[0], found[1], false);
            StringBuilder searched = new StringBuilder();
            for (long wanted : times)
                searched.append(' ').append(offsetOf(log, wanted));
            long end = -1;
            if (dirty.totalBytes() > 0 && dirty.cleanableRatio() > 0) {
                Cleaner cleaner = new Cleaner(
                    0, new SkimpyOffsetMap(Integer.parseInt(words[3])), 1 << 16, 1 << 20, 0.9,
                    new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time), time, partition -> { });
                try {
                    Map.Entry<Long, CleanerStats> done = cleaner.doClean(dirty, time.milliseconds());
                    end = done.getKey();
                } catch (InvalidRecordException tooLarge) {
                    end = -2;
                }
            }
            System.out.println(found[0] + " " + dirty.firstUncleanableOffset() + " " + end + " " + log.logEndOffset() + searched);
            log.close();
        }
        scheduler.shutdown();
    }
}
