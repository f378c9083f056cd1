import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.NotControllerException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/**
 * Writes one metadata change after the other to controllers, through Apache Kafka's own admin client, until it is ended.
 *
 * The arguments are the controllers and the pause between two changes in milliseconds. Each change sets the same config
 * of one resource to the next number, and is followed by a line: "acknowledged", or "refused", the number and the error.
 *
 * The client refreshes its metadata often: after an answer without a leader, the default refresh would wait five minutes.
 * Two errors are retried and are no refusals: "the cluster is too old", from a Kafka controller that has just started,
 * and NOT_CONTROLLER, which clients before Kafka 4 pass on to their caller.
 */
public final class AdminStream {
    private static final ConfigResource RESOURCE = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "stream");

    public static void main(String[] args) throws InterruptedException {
        Map<String, Object> settings = Map.of("bootstrap.controllers", args[0], "metadata.max.age.ms", 500);
        long pauseMs = Long.parseLong(args[1]);
        try (Admin admin = Admin.create(settings)) {
            for (int number = 0; ; Thread.sleep(pauseMs)) {
                try {
                    write(admin, number);
                    System.out.println("acknowledged " + number++);
                } catch (ExecutionException refusal) {
                    Throwable cause = refusal.getCause();
                    if (!(cause instanceof UnsupportedVersionException || cause instanceof NotControllerException)) {
                        System.out.println("refused " + number++ + " " + cause);
                    }
                }
            }
        }
    }

    private static void write(Admin admin, int number) throws ExecutionException, InterruptedException {
        ConfigEntry entry = new ConfigEntry("metrics", "value-" + number);
        AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(RESOURCE, List.of(change))).all().get();
    }
}
