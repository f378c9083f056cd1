import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;

/** A broker of Kafka with a class that takes the metrics of clients, and reads each push, as ours does. */
public class TelemetryBroker {
    public static void main(String[] args) throws Exception {
        // Kafka looks for the receiver there, and the launcher of a source file has put the class in a loader of its own.
        Thread.currentThread().setContextClassLoader(TelemetryBroker.class.getClassLoader());
        kafka.Kafka.main(args);
    }

    public static class Receiver implements MetricsReporter, ClientTelemetryExporterProvider {
        @Override
        public ClientTelemetryExporter clientTelemetryExporter() {
            return (context, payload) -> {
                try {
                    MetricsData.parseFrom(payload.data());
                } catch (java.io.IOException bad) {
                    throw new IllegalArgumentException(bad);
                }
            };
        }

        @Override
        public void init(List<KafkaMetric> metrics) {}

        @Override
        public void metricChange(KafkaMetric metric) {}

        @Override
        public void metricRemoval(KafkaMetric metric) {}

        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void close() {}
    }
}
